"""The ids of Hugging Face's tokenizers library, on strings of many scripts, emoji, code, white space and special tokens, by
small tokenizers of the forms that published models have: VARIANTS."""

import json
import pathlib
import random
import unicodedata

import tokenizers

TESTS = pathlib.Path(__file__).resolve().parent.parent
DATA = TESTS / "trainer" / "model" / "data"
QWEN = "trained_tokenizer.json"
LLAMA3 = "trained_llama3_tokenizer.json"
LLAMA2 = "trained_llama2_tokenizer.json"

TO_SPACE = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
FROM_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}


def metaspace(scheme, split):
    return {"normalizer": None,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}}


# A file, and its members that a form has otherwise.
VARIANTS = {
    "qwen": (QWEN, {}),
    "llama3": (LLAMA3, {}),
    "llama2": (LLAMA2, {}),
    "mistral": (LLAMA2, metaspace("first", False)),  # of v0.3
    "metaspace_always": (LLAMA2, metaspace("always", True)),
    "metaspace_never": (LLAMA2, metaspace("never", True)),
    "without_prefix": (LLAMA2, {
        "normalizer": FROM_SPACE,
        "decoder": {"type": "Sequence", "decoders": [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]}}),
    "normalized_tokens": (LLAMA2, {  # of older files
        "added_tokens": [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": True, "special": True} for i, content in enumerate(["<unk>", "<s>", "</s>"])]}),
}

TEXTS = [
    "The quick brown fox", "I'm you're WE'LL he'd they've it's 'S 'ſ don't", "naïve café", "cafe\u0301 nai\u0308ve", "Straße İstanbul",
    "Ελληνικά κείμενο", "Съешь ещё этих булок", "и\u0306 е\u0308", "עִבְרִית שלום", "العَرَبِيَّة ١٢٣", "हिन्दी में पाठ", "ภาษาไทย น้ำ", "中文測試文字", "日本語テキスト カ\u3099",
    "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "தமிழ் மொழி", "ქართული", "አማርኛ", "ᐃᓄᒃᑎᑐᑦ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "😀👍🏽", "👨\u200d👩\u200d👧\u200d👦 🇩🇪🏳️\u200d🌈",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "def f(x):\n    return x ** 2  # square\n\n\n", "<div class=\"a\">&nbsp;</div>\r\n",
    "{\"key\": [1, 2.5, null]}", "3.14159 1,234,567 0xff ½ ² Ⅷ ٣٤", "   ", "\t\t\n \n  \r\n", "\u00a0\u3000\u2028\u2029\u0085\u180e\u200b\u202f", " \n x",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|", "|im_end|>", "<|im_start|>user\n", "<|im_end|>\n", "!!!???...", "-->*&^%$#@",
    "\x00\x01\x7f", "\ufeff", "\ufffd", "\u0301\u0308", "\u212b \u2126 \ufb01 \u1e9b\u0323", "e\u0301\u0323", "~~", "aaaaaaaaaaaaaaaa", "a b c d",
]
MORE_TEXTS = [
    "<s>", "</s>", "<unk>", "x <s> y</s>z", "<s>hello", " <s> hello", "<|begin_of_text|>", "<|eot_id|>", "a <|eot_id|> b", "\u2581",
    " \u2581x", "\u2581 x", "  two  spaces ", " leading", "trailing ", "<0x0A>", "<0x41>x", "1234567 12 3", "square squares", "\n", "a\nb",
]
CHARACTERS = [chr(c) for c in range(0x20000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def text(source):
    parts = []
    for _ in range(source.randint(0, 6)):
        kind = source.random()
        if kind < 0.6:
            part = source.choice(TEXTS + MORE_TEXTS)
            begin = source.randint(0, len(part) - 1) if source.random() < 0.3 else 0
            parts.append(part[begin:])
        elif kind < 0.75:
            parts.append(source.choice(" \t\n\r\u00a0\u3000") * source.randint(1, 8))
        elif kind < 0.9:
            parts.append("".join(source.choices(CHARACTERS, k=source.randint(1, 6))))
        else:
            parts.append(str(source.randint(0, 10**source.randint(0, 9))))
        if source.random() < 0.5:
            parts.append(" ")
    return "".join(parts)


def by_pattern(pattern):
    """A byte-level pre-tokeniser and decoder, as keyword arguments."""
    level = dict(add_prefix_space=False, use_regex=False)
    return dict(
        pre_tokenizer=tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(**level)]),
        decoder=tokenizers.decoders.ByteLevel(**level))


def train_bytes(path, pattern, special_tokens, model=None, **members):
    tokenizer = tokenizers.Tokenizer(model or tokenizers.models.BPE())
    for name, member in (by_pattern(pattern) | members).items():
        setattr(tokenizer, name, member)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, special_tokens=special_tokens,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.save(str(path))


def corpus():
    return TEXTS * 5 + (TESTS / "trainer" / "tasks" / "data" / "gsm8k_test_50.jsonl").read_text().splitlines()


def before(token, id):
    """Of a text, and of each of a pair."""
    return tokenizers.processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, id)])


def train_llama2():
    """As a SentencePiece model becomes tokenizer.json: characters, bytes for those that are rare, spaces as U+2581."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("\u2581*[^\u2581]+|\u2581+"), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = before("<s>", 1)
    special = ["<unk>", "<s>", "</s>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, show_progress=False, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)],
        limit_alphabet=150)
    tokenizer.train_from_iterator(corpus(), trainer)
    made = json.loads(tokenizer.to_str())
    made["pre_tokenizer"] = None
    made["added_tokens"] = made["added_tokens"][:len(special)]  # bytes are tokens of the model alone
    (DATA / LLAMA2).write_text(json.dumps(made, indent=1, ensure_ascii=False))


def train():
    digits = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    train_bytes(DATA / QWEN, digits % "", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                normalizer=tokenizers.normalizers.NFC())
    train_bytes(DATA / LLAMA3, digits % "{1,3}", ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
                tokenizers.models.BPE(ignore_merges=True), post_processor=tokenizers.processors.Sequence(
                    [tokenizers.processors.ByteLevel(trim_offsets=False), before("<|begin_of_text|>", 0)]))
    # Tokens that no merge leads to, as Llama 3's has some: only a whole piece is one.
    made = json.loads((DATA / LLAMA3).read_text())
    parts = {part for merge in made["model"]["merges"] for part in merge}
    ends = [merge for merge in made["model"]["merges"] if "".join(merge) not in parts]
    made["model"]["merges"] = [merge for merge in made["model"]["merges"] if merge not in ends[::3]]
    (DATA / LLAMA3).write_text(json.dumps(made, indent=1, ensure_ascii=False))
    train_llama2()
    (DATA / "tokenizer_variants.json").write_text(
        json.dumps({name: {"file": file, "changes": changes} for name, (file, changes) in VARIANTS.items()}, indent=1) + "\n")


def lines(count):
    made = {name: tokenizers.Tokenizer.from_str(json.dumps(json.loads((DATA / file).read_text()) | changes))
            for name, (file, changes) in VARIANTS.items()}
    source = random.Random(15)
    given = TEXTS + MORE_TEXTS
    for i in range(count):
        name = list(VARIANTS)[i % len(VARIANTS)]
        turn = i // len(VARIANTS)
        # Each variant begins elsewhere.
        part = given[(turn + i % len(VARIANTS) * 9) % len(given)] if turn < len(given) and i < 2 * len(given) else text(source)
        ids = made[name].encode(part, add_special_tokens=False).ids
        surrounded = made[name].encode(part).ids
        begin = len(surrounded) - len(ids)
        yield {"tokenizer": name, "text": part, "ids": ids, "before": surrounded[:begin],
               "decoded": made[name].decode(ids, skip_special_tokens=False)}


if __name__ == "__main__":
    train()
