"""A one-block GPT with mixed precision, gradient accumulation and a checkpoint, in the style of nanoGPT."""

# ruff: noqa: B007

import os
import tempfile

import numpy as np

import lucid as torch
import lucid.nn as nn
import lucid.nn.functional as F

device = os.environ.get("DEVICE", "cpu")
torch.manual_seed(1337)
losses = []


class LayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class Model(nn.Module):
    def __init__(self, vocab, n_embd, block):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(wte=nn.Embedding(vocab, n_embd), ln=LayerNorm(n_embd, bias=False))
        )
        self.attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")

    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx)
        B, T, C = x.size()
        q, k, v = (
            t.view(B, T, 2, C // 2).transpose(1, 2) for t in self.attn(self.transformer.ln(x)).split(C, dim=2)
        )
        y = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=0.1 if self.training else 0, is_causal=True
        )
        x = x + y.transpose(1, 2).contiguous().view(B, T, C)
        if targets is not None:
            logits = self.lm_head(x)
            return logits, F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        return self.lm_head(x[:, [-1], :]), None


dtype = "bfloat16"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
device_type = "cuda" if "cuda" in device else "cpu"
ctx = torch.amp.autocast(device_type=device_type, dtype=ptdtype)
torch.backends.cuda.matmul.allow_tf32 = False
data = np.tile(np.arange(7, dtype=np.uint16), 60)


def get_batch(split):
    ix = torch.randint(len(data) - 8, (8,))
    x = torch.stack([torch.from_numpy((data[i : i + 8]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + 8]).astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)


model = Model(7, 8, 8).to(device)
scaler = torch.amp.GradScaler(device_type, enabled=(dtype == "float16"))
params = {pn: p for pn, p in model.named_parameters() if p.requires_grad}
groups = [
    {"params": [p for n, p in params.items() if p.dim() >= 2], "weight_decay": 1e-1},
    {"params": [p for n, p in params.items() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))


@torch.no_grad()
def estimate_loss():
    model.eval()
    found = torch.zeros(3)
    for k in range(3):
        X, Y = get_batch("val")
        with ctx:
            logits, loss = model(X, Y)
        found[k] = loss.item()
    model.train()
    return found.mean()


X, Y = get_batch("train")
for it in range(20):
    lr = 1e-2 * min(1, (it + 1) / 5)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    for micro_step in range(2):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / 2
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item() * 2)
assert estimate_loss() < losses[0]
checkpoint = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "iter_num": 20,
    "best_val_loss": losses[-1],
}
path = os.path.join(tempfile.mkdtemp(), "ckpt.pt")
torch.save(checkpoint, path)
checkpoint = torch.load(path, map_location=device)
state_dict = checkpoint["model"]
unwanted_prefix = "_orig_mod."
for k, v in list(state_dict.items()):
    if k.startswith(unwanted_prefix):
        state_dict[k[len(unwanted_prefix) :]] = state_dict.pop(k)
model.load_state_dict(state_dict)
optimizer.load_state_dict(checkpoint["optimizer"])
assert checkpoint["iter_num"] == 20
