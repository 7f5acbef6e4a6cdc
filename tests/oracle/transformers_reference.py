"""Loss and gradients of the tiny models of tests/data/hf/tiny by transformers' own classes, in fp32 with eager
attention: what tests/ref/test_transformers_reference.py holds offsim's arithmetic against.

    pip install torch transformers numpy pyyaml
    python3 tests/oracle/transformers_reference.py        # writes transformers.json
                                                          # (llama4-linearized: axolotl's src in PYTHONPATH)

Weights and tokens are drawn by offsim's rules (reference.py). Of every gradient the file keeps the number of
elements, the norm and some elements, by their index in row-major order.
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import reference

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import hf_saved  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent / "data" / "hf" / "tiny"
NOT_RUN = ("deepseek-v2", "deepseek-v3", "glm4-moe", "gpt-oss", "ministral3", "mixtral", "qwen2-moe", "qwen3-moe",
           "qwen3-next", "qwen3-vl-moe", "qwen3.5-moe")  # by ref
SEED, BATCH, LENGTH, SAMPLES = 1, 2, 7, 6


def initial(name, parameter, layers, zero_centred):
    """As sim/train/parameters.c: a norm's gain 1, or 0 if it is zero-centred; biases 0; matrices drawn."""
    if parameter.dim() > 1:
        weights = reference.Weights(SEED, layers)
        return weights.matrix(name, parameter.shape[0], parameter[0].numel()).detach().view_as(parameter)
    gain = name.endswith("linear_attn.norm.weight") or name.endswith("weight") and not zero_centred
    return torch.full_like(parameter, 1.0 if gain else 0.0)


def result_of(name):
    restore = hf_saved.linearize() if name in hf_saved.LINEARIZED else lambda: None
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    kind = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    config = AutoConfig.for_model(config.pop("model_type"), **config)
    config.use_cache = False
    model = kind.from_config(config, attn_implementation="eager", dtype=torch.float32).train()
    restore()
    config = config.get_text_config()
    parameters = {n.removeprefix("model.").removeprefix("language_model.").replace("feed_forward", "mlp"): p
                  for n, p in model.named_parameters() if ".visual." not in n}
    with torch.no_grad():
        for n, p in parameters.items():
            p.copy_(initial(n, p, config.num_hidden_layers, name.startswith(("gemma", "qwen3.5"))))
    ids = torch.tensor([reference.sequence(SEED, i, LENGTH, config.vocab_size)[:-1] for i in range(BATCH)])
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    reference.SAMPLES = SAMPLES
    return {"model": name, "loss": float(loss.detach()),
            "gradients": {n: reference.summary(p.grad) for n, p in parameters.items()}}


def main():
    torch.set_num_threads(1)
    numpy.seterr(over="ignore")
    names = sys.argv[1:] or sorted(p.stem for p in CONFIGS.glob("*.json") if p.stem not in NOT_RUN)
    runs = ",\n".join(json.dumps(result_of(name)) for name in names)
    (HERE / "transformers.json").write_text(
        f'{{"torch": "{torch.__version__}", "transformers": "{transformers.__version__}", "seed": {SEED}, '
        f'"batch": {BATCH},\n "length": {LENGTH}, "runs": [\n{runs}]}}\n')


if __name__ == "__main__":
    main()
