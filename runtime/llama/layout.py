"""How the pinned libllama lays out what we hand it: sizes and offsets in bytes, the same on every 64-bit platform.

Computed with a C compiler from the headers of the pinned version, independently of the binding. `selftest` compares.
Only what runtime.llama writes or reads is listed. A changed pin means computing this table anew.
"""

from __future__ import annotations

# struct: (size, {field: offset})
STRUCTS: dict[str, tuple[int, dict[str, int]]] = {
    "llama_batch": (
        56,
        {"n_tokens": 0, "token": 8, "embd": 16, "pos": 24, "n_seq_id": 32, "seq_id": 40, "logits": 48},
    ),
    "llama_context_params": (
        160,
        {
            "n_ctx": 0,
            "n_batch": 4,
            "n_ubatch": 8,
            "n_seq_max": 12,
            "n_outputs_max": 20,
            "n_threads": 28,
            "n_threads_batch": 32,
            "flash_attn_type": 52,
            "type_k": 104,
            "type_v": 108,
            "abort_callback": 112,
            "abort_callback_data": 120,
            "embeddings": 128,
            "offload_kqv": 129,
            "no_perf": 130,
            "op_offload": 131,
            "swa_full": 132,
            "kv_unified": 133,
            "samplers": 136,
            "n_samplers": 144,
            "ctx_other": 152,
        },
    ),
    "llama_model_params": (
        80,
        {
            "devices": 0,
            "tensor_buft_overrides": 8,
            "n_gpu_layers": 16,
            "load_mode": 24,
            "progress_callback": 48,
            "progress_callback_user_data": 56,
            "vocab_only": 72,
            "use_extra_bufts": 74,
            "no_alloc": 76,
            "load_mtp": 77,
        },
    ),
    "llama_token_data": (12, {"id": 0, "logit": 4, "p": 8}),
    "llama_token_data_array": (32, {"data": 0, "size": 8, "selected": 16, "sorted": 24}),
    "llama_logit_bias": (8, {"token": 0, "bias": 4}),
    "llama_sampler_chain_params": (1, {"no_perf": 0}),
}

# What the library's own default_params calls must answer, read through the fields above.
CONTEXT_DEFAULTS: dict[str, object] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_outputs_max": 0,
    "flash_attn_type": -1,
    "type_k": 1,
    "type_v": 1,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "n_samplers": 0,
    "ctx_other": None,
}
MODEL_DEFAULTS: dict[str, object] = {
    "devices": None,
    "tensor_buft_overrides": None,
    "n_gpu_layers": -1,
    "load_mode": -1,
    "vocab_only": False,
    "use_extra_bufts": True,
    "no_alloc": False,
    "load_mtp": False,
}

# Functions of libllama this package calls by name.
LLAMA_FUNCTIONS = (
    "llama_backend_init", "llama_context_default_params", "llama_decode", "llama_detokenize", "llama_free",
    "llama_get_causal_attn", "llama_get_logits", "llama_get_memory", "llama_init_from_model", "llama_log_set",
    "llama_memory_clear", "llama_memory_seq_cp", "llama_memory_seq_pos_max", "llama_memory_seq_pos_min",
    "llama_memory_seq_rm", "llama_model_chat_template", "llama_model_default_params", "llama_model_desc",
    "llama_model_free", "llama_model_get_vocab", "llama_model_has_decoder", "llama_model_has_encoder",
    "llama_model_is_hybrid", "llama_model_is_recurrent", "llama_model_load_from_file", "llama_model_meta_val_str",
    "llama_model_n_ctx_train", "llama_model_n_embd", "llama_model_n_head", "llama_model_n_head_kv",
    "llama_model_n_layer", "llama_model_n_params", "llama_model_n_swa", "llama_model_size", "llama_n_batch",
    "llama_n_ctx", "llama_n_ctx_seq", "llama_n_seq_max", "llama_n_ubatch", "llama_print_system_info",
    "llama_sampler_accept", "llama_sampler_apply", "llama_sampler_chain_add", "llama_sampler_chain_default_params",
    "llama_sampler_chain_init", "llama_sampler_clone", "llama_sampler_free", "llama_sampler_init_dist",
    "llama_sampler_init_dry", "llama_sampler_init_greedy", "llama_sampler_init_logit_bias",
    "llama_sampler_init_min_p", "llama_sampler_init_mirostat", "llama_sampler_init_mirostat_v2",
    "llama_sampler_init_penalties", "llama_sampler_init_temp", "llama_sampler_init_top_k",
    "llama_sampler_init_top_n_sigma", "llama_sampler_init_top_p", "llama_sampler_init_typical",
    "llama_sampler_init_xtc", "llama_sampler_reset", "llama_set_n_threads", "llama_state_seq_get_data_ext",
    "llama_state_seq_get_size_ext", "llama_state_seq_set_data_ext", "llama_supports_gpu_offload",
    "llama_synchronize", "llama_token_to_piece", "llama_tokenize", "llama_version", "llama_vocab_bos",
    "llama_vocab_eos", "llama_vocab_eot", "llama_vocab_fim_mid", "llama_vocab_fim_pad", "llama_vocab_fim_pre",
    "llama_vocab_fim_rep", "llama_vocab_fim_sep", "llama_vocab_fim_suf", "llama_vocab_get_add_bos",
    "llama_vocab_get_add_eos", "llama_vocab_get_attr", "llama_vocab_get_suppress_tokens", "llama_vocab_get_text",
    "llama_vocab_is_eog", "llama_vocab_n_tokens", "llama_vocab_nl", "llama_vocab_pad", "llama_vocab_type",
)  # fmt: skip
