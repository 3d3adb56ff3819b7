"""The ids of Hugging Face's tokenizers library, on strings of many scripts, emoji, code, white space and special tokens."""

import pathlib
import random
import unicodedata

import tokenizers

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "model" / "data" / "trained_tokenizer.json"

TEXTS = [
    "The quick brown fox", "I'm you're WE'LL he'd they've it's 'S 'ſ don't", "naïve café", "cafe\u0301 nai\u0308ve", "Straße İstanbul",
    "Ελληνικά κείμενο", "Съешь ещё этих булок", "и\u0306 е\u0308", "עִבְרִית שלום", "العَرَبِيَّة ١٢٣", "हिन्दी में पाठ", "ภาษาไทย น้ำ", "中文測試文字", "日本語テキスト カ\u3099",
    "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "தமிழ் மொழி", "ქართული", "አማርኛ", "ᐃᓄᒃᑎᑐᑦ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "😀👍🏽", "👨\u200d👩\u200d👧\u200d👦 🇩🇪🏳️\u200d🌈",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "def f(x):\n    return x ** 2  # square\n\n\n", "<div class=\"a\">&nbsp;</div>\r\n",
    "{\"key\": [1, 2.5, null]}", "3.14159 1,234,567 0xff ½ ² Ⅷ ٣٤", "   ", "\t\t\n \n  \r\n", "\u00a0\u3000\u2028\u2029\u0085\u180e\u200b\u202f", " \n x",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|", "|im_end|>", "<|im_start|>user\n", "<|im_end|>\n", "!!!???...", "-->*&^%$#@",
    "\x00\x01\x7f", "\ufeff", "\ufffd", "\u0301\u0308", "\u212b \u2126 \ufb01 \u1e9b\u0323", "e\u0301\u0323", "~~", "aaaaaaaaaaaaaaaa", "a b c d",
]
CHARACTERS = [chr(c) for c in range(0x20000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def text(source):
    parts = []
    for _ in range(source.randint(0, 6)):
        kind = source.random()
        if kind < 0.6:
            part = source.choice(TEXTS)
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


def train():
    """Writes a tokenizer of 1,500 tokens with the pre-tokeniser of Qwen2 and Qwen3."""
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               r"\s+(?!\S)|\s+")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    byte_level = dict(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(**byte_level)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel(**byte_level)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    problems = (TOKENIZER.parent.parent.parent / "tasks" / "data" / "gsm8k_test_50.jsonl").read_text()
    tokenizer.train_from_iterator(TEXTS * 5 + problems.splitlines(), trainer)
    tokenizer.save(str(TOKENIZER))


def lines(count):
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    source = random.Random(15)
    for i in range(count):
        line = {"text": TEXTS[i] if i < len(TEXTS) else text(source)}
        encoding = tokenizer.encode(line["text"], add_special_tokens=False)
        line["ids"] = encoding.ids
        yield line


if __name__ == "__main__":
    train()
