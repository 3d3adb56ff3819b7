"""A Hugging Face Trainer publishes its model after each step. Usage: train_transformers.py STATE_DIR [MODEL [STEPS]]

Start an origin first, on the same host: weightcast daemon --role origin --state STATE_DIR ...
"""

import sys

if not 2 <= len(sys.argv) <= 4:
    sys.exit("usage: train_transformers.py STATE_DIR [MODEL [STEPS]]")

import torch
import transformers
from weightcast.integrations.transformers import PublishCallback


def main(state_dir, name="Qwen/Qwen3-0.6B", steps="12"):
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    texts = [f"{a} plus {b} is {a + b}." for a in range(20) for b in range(20)]
    trainer = transformers.Trainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32),
        processing_class=tokenizer,
        train_dataset=[tokenizer(text) for text in texts],
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False),
        # Trained in FP32 and published in BF16, of which few values change in a step.
        callbacks=[PublishCallback(state_dir, dtype=torch.bfloat16)],
        args=transformers.TrainingArguments(
            output_dir="run", max_steps=int(steps), learning_rate=1e-6, logging_steps=1, save_strategy="no", report_to=[]
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
