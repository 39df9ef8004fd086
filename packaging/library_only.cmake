# Read by CMake right after the binding's project() line. The binding forces some options into CMake's cache; a plain
# variable outranks the cache.

# llama.cpp's common library: nothing in the wheel uses it, and it takes as long to compile as all the rest.
set(LLAMA_BUILD_COMMON OFF)

# Metal on every Mac, also when the build is to be for the processor.
if(HEADRACE_METAL STREQUAL "OFF")
    set(GGML_METAL OFF)
endif()
