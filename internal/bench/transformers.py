"""Plays a load of conversations as a plain evaluation loop over Transformers does: questions in static batches, padded
on the left, and every turn read from the beginning of its conversation. Prints {"seconds": …}; loading is not counted."""
import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM

checkpoint, load_file, batch_size, threads, device = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).to(device).eval()
conversations = json.load(open(load_file))


@torch.inference_mode()
def generate(prompts, n):
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
    out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, min_new_tokens=n, max_new_tokens=n, pad_token_id=0)
    return out[:, longest:].tolist()


generate([[1, 2, 3]], 2)
began = time.perf_counter()
for first in range(0, len(conversations), batch_size):
    batch = conversations[first : first + batch_size]
    tokens = [list(c["prompt"]) for c in batch]
    for turn in range(max(len(c["turns"]) for c in batch)):
        live = [i for i, c in enumerate(batch) if turn < len(c["turns"])]
        lengths = [batch[i]["turns"][turn][0] for i in live]
        answers = generate([tokens[i] for i in live], max(lengths))
        for i, n, answer in zip(live, lengths, answers):
            tokens[i] += answer[:n] + batch[i]["answers"][turn]
print(json.dumps({"seconds": time.perf_counter() - began}))
