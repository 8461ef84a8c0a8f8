"""A GAN step with normalised weights, DataParallel, old initialisers and trees, in the style of
pytorch/examples and vit-pytorch.
"""

# ruff: noqa: B007

import os
import warnings

import numpy as np
from lucid.nn.modules.batchnorm import _BatchNorm
from lucid.nn.modules.utils import _pair

import lucid as torch
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.nn.parallel
import lucid.nn.utils.parametrize as parametrize
import lucid.optim as optim
from lucid.autograd import Variable
from lucid.nn.utils.parametrizations import spectral_norm
from lucid.utils._pytree import tree_flatten, tree_unflatten

device = os.environ.get("DEVICE", "cpu")
torch.backends.cudnn.deterministic = True
torch.manual_seed(0)
losses = []


class WeightStandardization(nn.Module):
    def forward(self, w):
        return (w - w.mean(dim=(1, 2, 3), keepdim=True)) / (w.std(dim=(1, 2, 3), keepdim=True) + 1e-5)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1 and not parametrize.is_parametrized(m):
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, _BatchNorm):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            torch.nn.init.normal(m.weight, 1.0, 0.02)
            torch.nn.init.constant(m.bias, 0)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf, _pair(4), 1, 0, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            spectral_norm(nn.Conv2d(1, ndf, 4, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
        )

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


netG = Generator(6, 8).to(device)
netG.apply(weights_init)
netD = Discriminator(8).to(device)
netD.apply(weights_init)
parametrize.register_parametrization(netD.main[2], "weight", WeightStandardization())
assert parametrize.is_parametrized(netD.main[0]) and parametrize.is_parametrized(netD.main[2], "weight")
# One device here; on a machine with more the batch is split.
parallel = nn.DataParallel(netD, device_ids=[0] if device == "cuda" else [])
assert "module.main.2.parametrizations.weight.original" in parallel.state_dict()

optimizerD = optim.Adam(netD.parameters(), lr=0.02, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.002, betas=(0.5, 0.999))
pattern = np.kron([[1, -1], [-1, 1]], np.ones((4, 4))).astype(np.float32)

for i in range(15):
    real = Variable(torch.from_numpy(np.stack([pattern] * 8)[:, None])).to(device)
    noise = torch.randn(8, 6, 1, 1, device=device)
    batch, structure = tree_flatten({"real": real, "fake": [netG(noise)]})
    batch = tree_unflatten([x.detach() for x in batch], structure)
    # (1) Update D network
    netD.zero_grad()
    with parametrize.cached():
        errD_real = F.binary_cross_entropy_with_logits(
            parallel(batch["real"]), torch.full((8,), 1.0, device=device)
        )
        errD_fake = F.binary_cross_entropy_with_logits(
            parallel(batch["fake"][0]), torch.zeros(8, device=device)
        )
        errD = errD_real + errD_fake
    errD.backward()
    optimizerD.step()
    # (2) Update G network
    netG.zero_grad()
    fake = netG(noise)
    output = nn.parallel.data_parallel(netD, fake, [0]) if fake.is_cuda else netD(fake)
    errG = F.binary_cross_entropy_with_logits(output, torch.ones(8, device=device))
    errG.backward()
    optimizerG.step()
    losses.append(errD.item())

parametrize.remove_parametrizations(netD.main[2], "weight")
assert list(netD.main[2].state_dict()) == ["weight"]
with torch.profiler.profile(with_stack=True, profile_memory=True) as prof:
    netG(noise)
assert len(prof.key_averages()) > 0
