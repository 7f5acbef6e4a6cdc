"""Loss and gradients of tiny models by PyTorch in float64: what tests/ref/test_torch_reference.py holds
offsim's own arithmetic against.

    pip install torch numpy pyyaml
    python3 tests/oracle/reference.py        # writes a .json beside each scenario

The models are written down here once more, from what Megatron-LM's modules compute (core/transformer:
attention.py, multi_latent_attention.py, mlp.py, moe/router.py, moe/moe_utils.py,
multi_token_prediction.py) and transformers' LlamaForCausalLM, and differentiated by autograd: nothing is shared with offsim but the scenario,
and the rules by which weights and tokens are drawn (sim/train/generator.h, parameters.h, tokens.h).

The result of a scenario is the first seed from SEEDS on with which no choice of an expert is close: one
that a rounding error of fp32 could turn. Of every gradient the file keeps the largest magnitude, the norm
and some elements, by their index in row-major order.
"""

import json
import math
import pathlib

import numpy
import torch
import yaml

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = ("llama", "gpt", "hf-llama", "hf-lora", "qwen3-moe", "deepseek")
SEEDS = range(1, 1000)
MARGIN = 1e-4  # between an expert, or a group of them, that is chosen and one that is not
SAMPLES = 64   # elements of a gradient
EPSILON = 1e-5
INIT_STD = 0.02
MTP_LOSS_FACTOR = 0.1
MASK = (1 << 64) - 1


# ---- what is drawn ------------------------------------------------------------------------------------

def bits_of(key, index):
    """splitmix64 number `index` from the state `key`; `index` may be an array."""
    z = (numpy.uint64(key) + (numpy.asarray(index, dtype=numpy.uint64) + numpy.uint64(1))
         * numpy.uint64(0x9e3779b97f4a7c15))
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return z ^ (z >> numpy.uint64(31))


def key_of(seed, name):
    key = 0xcbf29ce484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001b3 & MASK
    return (int(bits_of(seed, 0)) + key) & MASK


def normals(key, count):
    """The sum of four 16-bit fields, standardised."""
    bits = bits_of(key, numpy.arange(count))
    total = sum((bits >> numpy.uint64(16 * field) & numpy.uint64(0xffff)).astype(numpy.int64)
                for field in range(4))
    return (total - 131070) / math.sqrt((2 ** 32 - 1) / 3)


def sequence(seed, sample, length, vocabulary):
    """The `length` tokens of a sample and the next one."""
    key = (key_of(seed, "tokens") + sample * (length + 1)) & MASK
    bits = bits_of(key, numpy.arange(length + 1))
    tokens = [int(bits[0]) % vocabulary]
    for i in range(length):
        tokens.append((5 * tokens[-1] + 3 + (int(bits[i + 1]) >> 63)) % vocabulary)
    return tokens


class Weights(dict):
    """Parameters by name, made when they are first asked for, as fp32 keeps them."""

    def __init__(self, seed, layers):
        super().__init__()
        self.seed, self.layers = seed, layers

    def deviation(self, name, columns):
        if name.endswith((".linear_proj.weight", ".linear_fc2.weight")):
            return INIT_STD / math.sqrt(2 * self.layers)
        return {"lora_A": 1 / math.sqrt(columns), "lora_B": 0}.get(name.split(".")[-2], INIT_STD)

    def matrix(self, name, rows, columns):
        if name not in self:
            values = self.deviation(name, columns) * normals(key_of(self.seed, name), rows * columns)
            self[name] = torch.tensor(values.astype(numpy.float32).astype(numpy.float64)
                                      .reshape(rows, columns), requires_grad=True)
        return self[name]

    def vector(self, name, width, value):
        if name not in self:
            self[name] = torch.full((width,), value, dtype=torch.float64, requires_grad=True)
        return self[name]


# ---- the model ----------------------------------------------------------------------------------------

class Model:
    """Tensors are [sequence, batch, ...]."""

    def __init__(self, scenario, seed):
        self.m, self.t, self.lora = scenario["model"], scenario["training"], scenario.get("lora")
        self.w = Weights(seed, self.m["num_layers"])
        self.seed = seed
        self.margin = math.inf
        self.balancing_losses = []

    def norm(self, name, x):
        gain = self.w.vector(name, x.shape[-1], 1.0)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPSILON) * gain

    def linear(self, name, x, outputs):
        return x @ self.w.matrix(name + ".weight", outputs, x.shape[-1]).T

    def rotated(self, x, neighbours=False):
        """Positions along the first dimension, pairs within the last one."""
        if neighbours:
            x = torch.cat((x[..., 0::2], x[..., 1::2]), -1)
        half = x.shape[-1] // 2
        base = float(self.m.get("rotary_base", 10000))
        frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * frequencies
        cos, sin = angles.cos()[:, None, None], angles.sin()[:, None, None]
        first, second = x[..., :half], x[..., half:]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def attended(self, query, key, value):
        """Causal attention of [s, b, heads, width]."""
        length = query.shape[0]
        scores = torch.einsum("ibhd,jbhd->bhij", query, key) / math.sqrt(query.shape[-1])
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        probabilities = scores.masked_fill(later, -math.inf).softmax(-1)
        return torch.einsum("bhij,jbhd->ibhd", probabilities, value).flatten(2)

    def attention(self, at, x):
        m = self.m
        heads, groups = m["num_attention_heads"], m.get("num_query_groups", m["num_attention_heads"])
        width = m.get("kv_channels", m["hidden_size"] // heads)
        shared = heads // groups
        qkv = self.linear(at + "linear_qkv", self.norm(at + "linear_qkv.layer_norm_weight", x),
                          groups * (shared + 2) * width)
        qkv = qkv.unflatten(-1, (groups, shared + 2, width))
        query, key, value = qkv[..., :shared, :].flatten(2, 3), qkv[..., shared, :], qkv[..., shared + 1, :]
        if m.get("qk_layernorm"):
            query = self.norm(at + "q_layernorm.weight", query)
            key = self.norm(at + "k_layernorm.weight", key)
        query, key = self.rotated(query), self.rotated(key)
        key, value = (t.repeat_interleave(shared, 2) for t in (key, value))
        return self.linear(at + "linear_proj", self.attended(query, key, value), m["hidden_size"])

    def latent_attention(self, at, x):
        m = self.m
        heads, plain, turning = m["num_attention_heads"], m["qk_head_dim"], m["qk_pos_emb_head_dim"]
        query = self.linear(at + "linear_q_down_proj", x, m["q_lora_rank"])
        query = self.linear(at + "linear_q_up_proj", self.norm(at + "q_layernorm.weight", query),
                            heads * (plain + turning)).unflatten(-1, (heads, plain + turning))
        down = self.linear(at + "linear_kv_down_proj", x, m["kv_lora_rank"] + turning)
        latent, position = down.split((m["kv_lora_rank"], turning), -1)
        up = self.linear(at + "linear_kv_up_proj", self.norm(at + "kv_layernorm.weight", latent),
                         heads * (plain + m["v_head_dim"])).unflatten(-1, (heads, -1))
        key, value = up.split((plain, m["v_head_dim"]), -1)
        position = self.rotated(position.unsqueeze(2), True).expand(-1, -1, heads, -1)
        query = torch.cat((query[..., :plain], self.rotated(query[..., plain:], True)), -1)
        key = torch.cat((key, position), -1)
        return self.linear(at + "linear_proj", self.attended(query, key, value), m["hidden_size"])

    def mlp(self, at, x, width):
        gate, up = self.linear(at + "linear_fc1", x, 2 * width).chunk(2, -1)
        return self.linear(at + "linear_fc2", torch.nn.functional.silu(gate) * up, x.shape[-1])

    # -- experts --

    def chosen(self, scores, k):
        """The k largest of the last dimension; notes how close the next one is."""
        values, indices = scores.topk(min(k + 1, scores.shape[-1]), -1)
        if values.shape[-1] > k:
            apart = (values[..., k - 1] - values[..., k]).detach()
            self.margin = min(self.margin, float(apart.min()))
        return indices[..., :k]

    def route(self, logits):
        """Experts of each token, and what their results are multiplied by."""
        m, k = self.m, self.m["moe_router_topk"]
        sigmoid = m.get("moe_router_score_function") == "sigmoid"
        scores = logits.sigmoid() if sigmoid else logits
        allowed = scores
        if m.get("moe_router_num_groups"):
            groups, of_token = m["moe_router_num_groups"], m["moe_router_group_topk"]
            by_group = scores.unflatten(-1, (groups, -1))
            best = by_group.topk(k // of_token, -1).values.sum(-1)
            open_groups = torch.zeros_like(best, dtype=torch.bool).scatter(1, self.chosen(best, of_token), True)
            allowed = by_group.masked_fill(~open_groups.unsqueeze(-1), -math.inf).flatten(1)
        experts = self.chosen(allowed, k)
        picked = scores.gather(1, experts)
        if not sigmoid:
            return experts, picked.softmax(-1)
        return experts, picked / (picked.sum(-1, keepdim=True) + 1e-20)

    def balancing_loss(self, logits, batch):
        """How often an expert is among a token's first k by its score, times its mean score: over a
        micro-batch, or over each of its sequences."""
        m, k = self.m, self.m["moe_router_topk"]
        experts = m["num_experts"]
        sigmoid = m.get("moe_router_score_function") == "sigmoid"
        scores = logits.sigmoid() if sigmoid else logits.softmax(-1)
        choice = torch.zeros_like(scores).scatter(1, self.chosen(scores, k), 1)
        if sigmoid:
            scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
        sequences = batch if m["moe_router_load_balancing_type"] == "seq_aux_loss" else 1
        by_sequence = [t.unflatten(0, (-1, sequences)).sum(0) for t in (scores, choice)]
        tokens = scores.shape[0] // sequences
        total = (by_sequence[0] * by_sequence[1]).sum()
        return total * experts * m["moe_aux_loss_coeff"] / (k * tokens * tokens) / sequences

    def moe(self, at, x):
        m = self.m
        rows = x.flatten(0, 1)
        logits = self.linear(at + "router", rows, m["num_experts"])
        experts, weights = self.route(logits)
        self.balancing_losses.append(self.balancing_loss(logits, x.shape[1]))
        y = torch.zeros_like(rows)
        for expert in range(m["num_experts"]):
            out = self.mlp(f"{at}experts.{expert}.", rows, m["moe_ffn_hidden_size"])
            y = y + out * (weights * (experts == expert)).sum(-1, keepdim=True)
        if m.get("moe_shared_expert_intermediate_size"):
            y = y + self.mlp(at + "shared_experts.", rows, m["moe_shared_expert_intermediate_size"])
        return y.view_as(x)

    # -- the whole --

    def is_moe(self, layer):
        frequency = self.m.get("moe_layer_freq", 1)
        pattern = [1] if frequency == 1 else eval(frequency, {})
        return self.m.get("num_experts", 0) > 0 and pattern[min(layer, len(pattern) - 1)] == 1

    def layer(self, number, x):
        at = f"layers.{number}."
        if self.m.get("multi_latent_attention"):
            x = x + self.latent_attention(at + "self_attention.", self.norm(at + "input_layernorm.weight", x))
        else:
            x = x + self.attention(at + "self_attention.", x)
        if self.is_moe(min(number, self.m["num_layers"] - 1)):
            return x + self.moe(at + "mlp.", self.norm(at + "pre_mlp_layernorm.weight", x))
        normed = self.norm(at + "mlp.linear_fc1.layer_norm_weight", x)
        return x + self.mlp(at + "mlp.", normed, self.m["ffn_hidden_size"])

    def embedded(self, tokens):
        table = self.w.matrix("embedding.word_embeddings.weight", self.m["vocab_size"], self.m["hidden_size"])
        return table[tokens]

    def token_losses(self, x, labels):
        logits = self.linear("output_layer", x, self.m["vocab_size"])
        return torch.logsumexp(logits, -1) - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    def predicted(self, x, tokens, labels):
        """The losses of one prediction further, weighted; the last position has nothing to predict."""
        at = f"layers.{self.m['num_layers']}."
        both = torch.cat((self.norm(at + "mtp.enorm.weight", self.embedded(tokens)),
                          self.norm(at + "mtp.hnorm.weight", x)), -1)
        y = self.layer(self.m["num_layers"], self.linear(at + "mtp.eh_proj", both, x.shape[-1]))
        losses = self.token_losses(self.norm(at + "mtp.final_layernorm.weight", y), labels)[:-1]
        return MTP_LOSS_FACTOR * losses.mean()

    def losses(self, tokens, labels):
        """Of a micro-batch: what is reported, and what is differentiated."""
        self.balancing_losses = []
        x = self.embedded(tokens)
        for number in range(self.m["num_layers"]):
            x = self.layer(number, x)
        x = self.norm("final_layernorm.weight", x)
        loss = total = self.token_losses(x, labels).mean()
        if self.m.get("mtp_num_layers"):
            total = total + self.predicted(x, *(rolled(t) for t in (tokens, labels)))
        return loss, total + sum(self.balancing_losses)

    def gradients(self):
        """Of what is trained: with adapters, those alone."""
        return {name: w.grad for name, w in sorted(self.w.items()) if self.lora is None or ".lora_" in name}

    def batches(self):
        """Tokens and labels of each micro-batch."""
        rows, length = self.t["micro_batch_size"], self.t["seq_length"]
        for first in range(0, self.t["global_batch_size"], rows):
            samples = torch.tensor([sequence(self.seed, first + i, length, self.m["vocab_size"])
                                    for i in range(rows)]).T
            yield samples[:-1], samples[1:]

    def has_close_choices(self):
        with torch.no_grad():
            for tokens, labels in self.batches():
                self.losses(tokens, labels)
        return self.margin < MARGIN

    def step(self):
        """The loss of the first step; gradients are left in the weights."""
        count = self.t["global_batch_size"] // self.t["micro_batch_size"]
        reported = 0
        for tokens, labels in self.batches():
            loss, total = self.losses(tokens, labels)
            (total / count).backward()
            reported += float(loss.detach()) / count
        return reported


class BiasedModel(Model):
    """LayerNorm, biases, positions that are learnt, one table of tokens at both ends."""

    def norm(self, name, x):
        x = x - x.mean(-1, keepdim=True)
        bias = self.w.vector(name[:-len("weight")] + "bias", x.shape[-1], 0.0)
        return super().norm(name, x) + bias

    def linear(self, name, x, outputs):
        if name == "output_layer":
            return x @ self.w["embedding.word_embeddings.weight"].T
        return super().linear(name, x, outputs) + self.w.vector(name + ".bias", outputs, 0.0)

    def rotated(self, x, neighbours=False):
        return x

    def mlp(self, at, x, width):
        inner = torch.nn.functional.gelu(self.linear(at + "linear_fc1", x, width), approximate="tanh")
        return self.linear(at + "linear_fc2", inner, x.shape[-1])

    def embedded(self, tokens):
        positions = self.w.matrix("embedding.position_embeddings.weight", self.m["max_position_embeddings"],
                                  self.m["hidden_size"])
        return super().embedded(tokens) + positions[:len(tokens), None]


class PlainModel(Model):
    """As transformers writes it down: a linear for each of query, key, value, gate and up."""

    def linear(self, name, x, outputs):
        y = super().linear(name, x, outputs)
        if self.lora is None:
            return y
        rank = self.lora["lora_r"]
        inner = super().linear(name + ".lora_A", x, rank)
        return y + super().linear(name + ".lora_B", inner, outputs) * (self.lora["lora_alpha"] / rank)

    def biased(self, name, x, outputs):
        y = self.linear(name, x, outputs)
        return y + self.w.vector(name + ".bias", outputs, 0.0) if self.m.get("add_qkv_bias") else y

    def attention(self, at, x):
        m = self.m
        heads, groups = m["num_attention_heads"], m["num_query_groups"]
        width = m["hidden_size"] // heads
        query, key, value = (self.biased(f"{at}{name}_proj", x, count * width).unflatten(-1, (count, width))
                             for name, count in (("q", heads), ("k", groups), ("v", groups)))
        query, key = self.rotated(query), self.rotated(key)
        key, value = (t.repeat_interleave(heads // groups, 2) for t in (key, value))
        return self.linear(at + "o_proj", self.attended(query, key, value), m["hidden_size"])

    def mlp(self, at, x, width):
        gate, up = (self.linear(f"{at}{name}_proj", x, width) for name in ("gate", "up"))
        return self.linear(at + "down_proj", torch.nn.functional.silu(gate) * up, x.shape[-1])

    def layer(self, number, x):
        at = f"layers.{number}."
        x = x + self.attention(at + "self_attn.", self.norm(at + "input_layernorm.weight", x))
        normed = self.norm(at + "post_attention_layernorm.weight", x)
        return x + self.mlp(at + "mlp.", normed, self.m["ffn_hidden_size"])

    def losses(self, tokens, labels):
        """Labels are the tokens, moved on within the sequence: the last one predicts nothing."""
        table = self.w.matrix("embed_tokens.weight", self.m["vocab_size"], self.m["hidden_size"])
        x = table[tokens]
        for number in range(self.m["num_layers"]):
            x = self.layer(number, x)
        logits = self.norm("norm.weight", x)[:-1] @ table.T
        picked = logits.gather(-1, tokens[1:].unsqueeze(-1)).squeeze(-1)
        loss = (torch.logsumexp(logits, -1) - picked).mean()
        return loss, loss


def rolled(t):
    return torch.cat((t[1:], torch.zeros_like(t[:1])))


# ---- what is kept -------------------------------------------------------------------------------------

def summary(gradient):
    flat = gradient.detach().flatten()
    count = flat.numel()
    some = flat.nonzero().flatten().tolist()
    indices = sorted({some[i * len(some) // SAMPLES] for i in range(SAMPLES if some else 0)}
                     | {i * count // 4 for i in range(4)} | {int(flat.abs().argmax())})
    return {"elements": count, "largest": float(flat.abs().max()), "norm": float(flat.norm()),
            "samples": {str(i): float(flat[i]) for i in indices}}


def result_of(scenario):
    m = scenario["model"]
    biased = BiasedModel if m["normalization"] == "LayerNorm" else Model
    kind = PlainModel if m.get("implementation") == "hf" else biased
    for seed in SEEDS:
        model = kind(scenario, seed)
        if model.has_close_choices():
            continue
        return {"seed": seed, "margin": model.margin if math.isfinite(model.margin) else None,
                "loss": model.step(),
                "gradients": {name: summary(g) for name, g in model.gradients().items()}}
    raise SystemExit("no seed keeps the choices of experts apart")


def write(path, result):
    gradients = result.pop("gradients")
    head = json.dumps(result)[:-1]
    lines = (f"  {json.dumps(name)}: {json.dumps(g)}" for name, g in gradients.items())
    path.write_text(f'{head}, "gradients": {{\n' + ",\n".join(lines) + "\n}}\n")


def main():
    torch.set_num_threads(1)
    numpy.seterr(over="ignore")
    for name in SCENARIOS:
        scenario = yaml.safe_load((HERE / f"{name}.yaml").read_text())
        result = result_of(scenario)
        print(f"{name}: seed {result['seed']}, margin {result['margin']}, loss {result['loss']:.12f}")
        write(HERE / f"{name}.json", result)


if __name__ == "__main__":
    main()
