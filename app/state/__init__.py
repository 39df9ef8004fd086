"""What the window shows, as objects with signals. QtCore only: nothing here knows a widget."""
