"""Bigrams, a network with batch norm by hand, and a recurrent cell, in the style of makemore."""

# ruff: noqa: B007

import os

import lucid as torch
import lucid.nn as nn
import lucid.nn.functional as F

device = os.environ.get("DEVICE", "cpu")
torch.manual_seed(1337)
losses = []

words = ["emma", "olivia", "ava", "isabella", "sophia", "mia", "amelia", "harper"]
chars = sorted(list(set("".join(words))))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
N = torch.zeros((len(stoi), len(stoi)), dtype=torch.int32)
X, Y = [], []
for w in words:
    context = [0] * 3
    for ch in w + ".":
        ix = stoi[ch]
        N[context[-1], ix] += 1
        X.append(context)
        Y.append(ix)
        context = context[1:] + [ix]
X, Y = torch.tensor(X), torch.tensor(Y)
P = (N + 1).float()
P /= P.sum(1, keepdim=True)
assert torch.allclose(P.sum(1), torch.ones(len(stoi)))
g = torch.Generator().manual_seed(2147483647)
ix = torch.multinomial(P[0], num_samples=5, replacement=True, generator=g)
assert ix.shape == (5,)
V = len(stoi)
C = torch.randn((V, 4), generator=g)
W1 = torch.randn((12, 20), generator=g) * (5 / 3) / (12**0.5)
bngain, bnbias = torch.ones((1, 20)), torch.zeros((1, 20))
bnmean_running, bnstd_running = torch.zeros((1, 20)), torch.ones((1, 20))
W2 = torch.randn((20, V), generator=g) * 0.01
b2 = torch.randn(V, generator=g) * 0
parameters = [C, W1, bngain, bnbias, W2, b2]
for p in parameters:
    p.requires_grad = True
for i in range(30):
    ix = torch.randint(0, X.shape[0], (16,), generator=g)
    Xb, Yb = X[ix], Y[ix]
    emb = C[Xb]
    hpreact = emb.view(emb.shape[0], -1) @ W1
    bnmeani, bnstdi = hpreact.mean(0, keepdim=True), hpreact.std(0, keepdim=True)
    hpreact = bngain * (hpreact - bnmeani) / bnstdi + bnbias
    with torch.no_grad():
        bnmean_running = 0.999 * bnmean_running + 0.001 * bnmeani
        bnstd_running = 0.999 * bnstd_running + 0.001 * bnstdi
    h = torch.tanh(hpreact)
    logits = h @ W2 + b2
    loss = F.cross_entropy(logits, Yb)
    h.retain_grad()
    for p in parameters:
        p.grad = None
    loss.backward()
    assert h.grad.shape == h.shape
    for p in parameters:
        p.data += -0.3 * p.grad
    losses.append(loss.item())


class RNNCell(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.xh_to_h = nn.Linear(n + n, n)

    def forward(self, xt, hprev):
        return F.tanh(self.xh_to_h(torch.cat([xt, hprev], dim=1)))


cell, start = RNNCell(4), nn.Parameter(torch.zeros(1, 4))
hprev, hiddens = start.expand((16, -1)), []
for i in range(3):
    hprev = cell(C[Xb][:, i, :], hprev)
    hiddens.append(hprev)
torch.stack(hiddens, 1).sum().backward()
assert start.grad is not None and start.grad.shape == (1, 4)
