"""MNIST, VAE, DCGAN, word model, LBFGS, super resolution, actor-critic, in the style of pytorch/examples."""

# ruff: noqa: B905

import os

import numpy as np

import lucid as torch
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
from lucid.distributions.categorical import Categorical

device = os.environ.get("DEVICE", "cpu")
torch.manual_seed(1337)
losses = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.1), nn.Dropout2d(0.1)
        self.fc1 = nn.Linear(4 * 3 * 3, 10)

    def forward(self, x):
        x = self.dropout2(F.max_pool2d(F.relu(self.conv1(x)), 2))
        x = self.dropout1(torch.flatten(x, 1))
        return F.log_softmax(self.fc1(x), dim=1)


model = Net().to(device)
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
data, target = torch.randn(32, 1, 8, 8, device=device), torch.randint(0, 10, (32,), device=device)
data[:, 0, 0] += target.unsqueeze(1)
model.train()
for _ in range(10):
    optimizer.zero_grad()
    loss = F.nll_loss(model(data), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
scheduler.step()
model.eval()
with torch.no_grad():
    output = model(data)
    test_loss = F.nll_loss(output, target, reduction="sum").item()
    pred = output.argmax(dim=1, keepdim=True)
    correct = pred.eq(target.view_as(pred)).sum().item()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 16), nn.Linear(16, 2), nn.Linear(16, 2)
        self.fc3, self.fc4 = nn.Linear(2, 16), nn.Linear(16, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


vae = VAE().to(device)
optimizer = optim.Adam(vae.parameters(), lr=1e-3)
x = torch.rand(8, 1, 8, 8, device=device)
recon, mu, logvar = vae(x)
BCE = F.binary_cross_entropy(recon, x.view(-1, 64), reduction="sum")
KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
(BCE + KLD).backward()
optimizer.step()


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


netG = nn.Sequential(
    nn.ConvTranspose2d(5, 8, 4, 1, 0, bias=False),
    nn.BatchNorm2d(8),
    nn.ReLU(True),
    nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
).to(device)
netD = nn.Sequential(
    nn.Conv2d(1, 4, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(4, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
).to(device)
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
for _ in range(2):
    netD.zero_grad()
    real = torch.rand(6, 1, 8, 8, device=device)
    label = torch.full((6,), 1, dtype=real.dtype, device=device)
    errD_real = criterion(netD(real).view(-1, 1).squeeze(1), label)
    errD_real.backward()
    fake = netG(torch.randn(6, 5, 1, 1, device=device))
    label.fill_(0)
    errD_fake = criterion(netD(fake.detach()).view(-1, 1).squeeze(1), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1)
    errG = criterion(netD(fake).view(-1, 1).squeeze(1), label)
    errG.backward()
    optimizerG.step()


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.2):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        self.drop, self.encoder = nn.Dropout(dropout), nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


source = (
    torch.LongTensor([i % 5 for i in range(41)]) if hasattr(torch, "LongTensor") else torch.arange(41) % 5
)
source = source[:40].view(4, -1).t().contiguous().to(device)
rnn = RNNModel("LSTM", 5, 6, 6, 2).to(device)
hidden = rnn.init_hidden(4)
for i in range(0, 8, 4):
    rnn.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = rnn(source[i : i + 4], hidden)
    loss = nn.NLLLoss()(output, source[i + 1 : i + 5].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(rnn.parameters(), 0.25)
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(p.grad, alpha=-1.0)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 6)
        self.linear = nn.Linear(6, 1)

    def forward(self, input):
        outputs = []
        h_t = torch.zeros(input.size(0), 6, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 6, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            outputs += [self.linear(h_t)]
        return torch.cat(outputs, dim=1)


seq = Sequence()
seq.double()
wave = torch.from_numpy(np.sin(np.arange(12) / 2.0)[None].repeat(2, 0))
optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=5)
history = []


def closure():
    optimizer.zero_grad()
    loss = nn.MSELoss()(seq(wave[:, :-1]), wave[:, 1:])
    history.append(loss.item())
    loss.backward()
    return loss


optimizer.step(closure)
assert history[-1] < history[0]

upscale = nn.Sequential(
    nn.Conv2d(1, 4, (3, 3), (1, 1), (1, 1)), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.PixelShuffle(2)
)
nn.init.orthogonal_(upscale[0].weight, nn.init.calculate_gain("relu"))
assert upscale(torch.rand(2, 1, 4, 4)).shape == (2, 1, 8, 8)
style = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True))
up = F.interpolate(style(torch.rand(1, 3, 4, 4)), mode="nearest", scale_factor=2)
b, ch, h, w = up.size()
features = up.view(b, ch, w * h)
gram = features.bmm(features.transpose(1, 2)) / (ch * h * w)
assert gram.shape == (1, 4, 4)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.action_head, self.value_head = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        self.saved_actions = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


policy = Policy()
for _ in range(3):
    probs, state_value = policy(torch.from_numpy(np.ones(4, dtype="float32")).float())
    m = Categorical(probs)
    action = m.sample()
    policy.saved_actions.append((m.log_prob(action), state_value, action.item()))
returns = torch.tensor([1.0, 0.5, 0.2])
returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
policy_losses, value_losses = [], []
for (log_prob, value, _), R in zip(policy.saved_actions, returns):
    policy_losses.append(-log_prob * (R - value.item()))
    value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
(torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()).backward()
