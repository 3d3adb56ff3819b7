"""Each architecture that transformers knows and that can be made small: what PublishCallback publishes is what save_pretrained()
writes, by names, dtypes and bits, or it is refused by name. By the real transformers, in two minutes of a core."""

import os
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "1"}  # before what looks at them

import torch  # noqa: E402
import transformers  # noqa: E402
import weightcast  # noqa: E402
from daemons import DaemonTest  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from weightcast.integrations.transformers import PublishCallback  # noqa: E402

#: By value: what configurations name so. Others keep what they are made with.
SIZES = {
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers depth "
       "num_experts_per_tok moe_topk top_k moe_top_k num_codebooks",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_key_value_heads "
       "num_experts num_local_experts n_routed_experts moe_num_experts mamba_n_heads",
    8: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim state_size mamba_d_state hidden_size_per_layer_input "
       "time_step_rank patch_size",
    16: "q_lora_rank kv_lora_rank mamba_d_head",
    32: "hidden_size d_model n_embd dim embed_dim model_dim width hidden_dim embedding_size word_embed_proj_dim projection_dim "
        "image_size",
    48: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size mlp_dim moe_intermediate_size "
        "shared_expert_intermediate_size",
    64: "max_position_embeddings n_positions",
    259: "vocab_size text_vocab_size vocab_size_per_layer_input",
    0: "num_kv_shared_layers pad_token_id",
    1: "n_group topk_group n_shared_experts num_shared_experts first_k_dense_replace bos_token_id eos_token_id",
}  # fmt: skip
SMALL = {name: value for value, names in SIZES.items() for name in names.split()}
KINDS = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
)  # fmt: skip
CELLS_MAX = 40_000_000
#: So many at least have to fit the sizes above: of transformers 5.23 296 do.
LEAST = 250


def make_config(kind):
    """Small where its names are those above. Errors: what the configuration's class raises."""
    default = kind()
    known = {name: value for name, value in vars(default).items() if isinstance(value, int) and not isinstance(value, bool)}
    parts = {name: make_config(type(value)) for name, value in vars(default).items()
             if isinstance(value, transformers.PreTrainedConfig)}  # fmt: skip
    return kind(**{name: SMALL[name] for name in known if name in SMALL}, **parts)


def make_model(kind, config):
    """None where it is too large. Errors: what the model's class raises."""
    with torch.device("meta"):
        if sum(tensor.numel() for tensor in kind(config).parameters()) > CELLS_MAX:
            return None
    torch.manual_seed(1)
    model = kind(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.is_floating_point():
                tensor.add_(torch.randn_like(tensor) * 0.05)
    return model


def content(tensors):
    """By names: dtype and bits."""
    return {name: (tensor.dtype, tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            for name, tensor in tensors.items()}  # fmt: skip


def classes():
    found = {}
    for config in CONFIG_MAPPING.values():
        for mapping in KINDS:
            try:
                kinds = mapping[config]
            except (KeyError, ValueError):  # of none, or of a package that is not here
                continue
            found.update({kind: config for kind in (kinds if isinstance(kinds, tuple) else (kinds,))})
    return found


class SavedModelsTest(DaemonTest):
    def test_each_is_published_as_it_is_saved(self):
        equal = 0
        for kind, config in classes().items():
            with self.subTest(kind.__name__):
                try:
                    model = make_model(kind, make_config(config))
                    directory = self.directory / "saved" / kind.__name__
                    if model is not None:
                        model.save_pretrained(directory)
                except Exception:  # these sizes do not fit it
                    continue
                if model is not None:
                    equal += 1
                    self.expect_as_saved(model, directory)
        self.assertGreater(equal, LEAST)

    def expect_as_saved(self, model, directory):
        callback = PublishCallback(self.origin.state, new_model=True, allow_nonfinite=True, timeout=60)
        callback.on_train_begin(None, transformers.TrainerState(is_world_process_zero=True), None, model=model)
        saved = content({name: tensor.torch() for name, tensor in weightcast.Snapshot(directory).items()})
        with weightcast.load(self.origin.state) as weights:
            found = content(weights.torch())
        self.assertEqual(sorted(found), sorted(saved))
        self.assertEqual([name for name in saved if saved[name] != found[name]], [])


if __name__ == "__main__":
    unittest.main()
