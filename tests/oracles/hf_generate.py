"""Answers of transformers' generate(), and the distributions that its logits processors leave. Models as in
hf_models.py."""

import random

import golden
import hf_models
import torch
import transformers

# It would import parts of Debian's torch that its Python refuses.
transformers.generation.utils.is_fsdp_managed_module = lambda model: False

STEPS = 12
# Of probabilities, logits and cumulative sums: nearer than this, rounding decides.
MARGIN = 1e-3


def answer(model, prompt, penalty):
    with torch.no_grad():
        out = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=STEPS,
            do_sample=False, repetition_penalty=penalty, return_dict_in_generate=True, output_scores=True,
            eos_token_id=None, pad_token_id=0, temperature=None, top_p=None, top_k=None)
    scores = torch.cat(out.scores).float()
    best = scores.topk(2).values
    tokens = out.sequences[0, len(prompt):]
    log_probs = scores.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    return tokens.tolist(), log_probs.tolist(), (best[:, 0] - best[:, 1]).min().item()


def prompt_log_probs(model, prompt):
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0].float()
    return logits[:-1].log_softmax(-1).gather(1, torch.tensor(prompt[1:])[:, None])[:, 0].tolist()


def distribution(source):
    """What the processors make of some logits; None where a cut is a matter of rounding."""
    vocabulary = source.choice([5, 16, 40])
    logits = [source.gauss(0, 3) for _ in range(vocabulary)]
    if source.random() < 0.3:
        logits[1] = logits[0]
    seen = [source.randrange(vocabulary) for _ in range(source.randint(1, 6))]
    options = {
        "repetition_penalty": source.choice([1.0, 1.3, 0.8]), "temperature": source.choice([1.0, 0.5, 1.7]),
        "top_k": source.choice([0, 1, 3, 10]), "top_p": source.choice([1.0, 0.9, 0.5, 0.05]),
        "min_p": source.choice([0.0, 0.05, 0.5])}
    scores = torch.tensor([logits])
    ids = torch.tensor([seen])
    penalty = transformers.RepetitionPenaltyLogitsProcessor(options["repetition_penalty"])
    scores = transformers.TemperatureLogitsWarper(options["temperature"])(ids, penalty(ids, scores))
    if options["top_k"]:
        scores = transformers.TopKLogitsWarper(options["top_k"])(ids, scores)
    if options["top_p"] < 1:
        kept = scores.softmax(-1).sort(descending=True).values.cumsum(-1)
        if (kept - options["top_p"]).abs().min() < MARGIN:
            return None
        scores = transformers.TopPLogitsWarper(options["top_p"])(ids, scores)
    if options["min_p"] > 0:
        probabilities = scores.softmax(-1)
        if (probabilities / probabilities.max() - options["min_p"]).abs().min() < MARGIN:
            return None
        scores = transformers.MinPLogitsWarper(options["min_p"])(ids, scores)
    log_probs = [None if x == float("-inf") else x for x in scores.log_softmax(-1)[0].tolist()]
    # transformers keeps all of equal logits, and we keep the first ones.
    if any(a == b for i, a in enumerate(log_probs) for b in log_probs[:i] if a is not None) and options["top_k"]:
        return None
    return {"logits": hf_models.rounded(logits), "seen": seen, "options": options,
            "log_probs": [None if x is None else hf_models.rounded([x])[0] for x in log_probs]}


def distributions(source, count):
    made = []
    while len(made) < count:
        one = distribution(source)
        if one is not None:
            made.append(one)
    return made


def lines(count):
    source = random.Random(61)
    made = 0
    while made < count:
        family, options = hf_models.config(source, made, hf_models.ROPE_KINDS)
        options["max_position_embeddings"] = 64
        if options["rope_scaling"] and "original_max_position_embeddings" in options["rope_scaling"]:
            options["rope_scaling"]["original_max_position_embeddings"] = int(64 / options["rope_scaling"]["factor"])
        model = hf_models.make(family, options).eval()
        seed = source.randint(0, 2**32)
        hf_models.fill(model, seed)
        prompts = [[source.randrange(options["vocab_size"]) for _ in range(source.choice([1, 2, 15, 16, 17, 33]))]
                   for _ in range(source.randint(1, 3))]
        penalty = source.choice([1.0, 1.0, 1.2])
        answers = [answer(model, prompt, penalty) for prompt in prompts]
        sequences = [prompt + tokens for prompt, (tokens, _, _) in zip(prompts, answers)]
        if min(margin for _, _, margin in answers) < 1e-2:
            continue
        if family == "Qwen3Moe" and hf_models.router_margin(model, sequences) < 1e-4:
            continue
        made += 1
        yield {"config": hf_models.saved_config(model), "seed": seed, "repetition_penalty": penalty, "prompts": prompts,
               "answers": [tokens for tokens, _, _ in answers],
               "log_probs": [hf_models.rounded(log_probs) for _, log_probs, _ in answers],
               "prompt_log_probs": [hf_models.rounded(prompt_log_probs(model, prompt)) for prompt in prompts],
               "distributions": distributions(source, 4)}


def same(a, b):
    return golden.near(a, b, 2e-5)
