"""Scripts in the style of public PyTorch repositories run with `import lucid as torch`, and with PyTorch
itself.

Each script is one text that takes a few training steps and leaves `losses`. The text is the same for both
libraries, so a script that only one of them can run is a difference between them. Names that scripts use are
counted below; all are there but those in MISSING.
"""

import importlib
import sys

import numpy as np
import pytest

MINGPT = """
class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.attn_dropout = nn.Dropout(config.attn_pdrop)
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size))
                             .view(1, 1, config.block_size, config.block_size))
        self.n_head = config.n_head
        self.n_embd = config.n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float('-inf'))
        att = self.attn_dropout(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.ModuleDict(dict(
            c_fc=nn.Linear(config.n_embd, 4 * config.n_embd), c_proj=nn.Linear(4 * config.n_embd,
            config.n_embd), act=NewGELU(), dropout=nn.Dropout(0.1)))
        m = self.mlp
        self.mlpf = lambda x: m.dropout(m.c_proj(m.act(m.c_fc(x))))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlpf(self.ln_2(x))

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.block_size = config.block_size
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd), wpe=nn.Embedding(config.block_size,
            config.n_embd), drop=nn.Dropout(0.1), h=nn.ModuleList([Block(config) for _ in
            range(config.n_layer)]), ln_f=nn.LayerNorm(config.n_embd)))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith('c_proj.weight'):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
        elif isinstance(module, nn.LayerNorm):
            torch.nn.init.zeros_(module.bias)
            torch.nn.init.ones_(module.weight)

    def configure_optimizers(self):
        decay, no_decay = set(), set()
        for mn, m in self.named_modules():
            for pn, p in m.named_parameters():
                fpn = '%s.%s' % (mn, pn) if mn else pn
                if pn.endswith('bias'):
                    no_decay.add(fpn)
                elif pn.endswith('weight') and isinstance(m, (torch.nn.Linear,)):
                    decay.add(fpn)
                elif pn.endswith('weight') and isinstance(m, (torch.nn.LayerNorm, torch.nn.Embedding)):
                    no_decay.add(fpn)
        param_dict = {pn: p for pn, p in self.named_parameters()}
        assert len(decay & no_decay) == 0 and len(param_dict.keys() - (decay | no_decay)) == 0
        groups = [{"params": [param_dict[pn] for pn in sorted(list(decay))], "weight_decay": 0.1},
                  {"params": [param_dict[pn] for pn in sorted(list(no_decay))], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))

    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        assert t <= self.block_size, f"Cannot forward sequence of length {t}"
        pos = torch.arange(0, t, dtype=torch.long, device=device).unsqueeze(0)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, do_sample=False, top_k=None):
        for _ in range(max_new_tokens):
            idx_cond = idx if idx.size(1) <= self.block_size else idx[:, -self.block_size:]
            logits, _ = self(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, top_k)
                logits[logits < v[:, [-1]]] = -float('Inf')
            probs = F.softmax(logits, dim=-1)
            if do_sample:
                idx_next = torch.multinomial(probs, num_samples=1)
            else:
                _, idx_next = torch.topk(probs, k=1, dim=-1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx

class SortDataset(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        inp = torch.randint(3, size=(6,), dtype=torch.long)
        sol = torch.sort(inp)[0]
        cat = torch.cat((inp, sol), dim=0)
        x, y = cat[:-1].clone(), cat[1:].clone()
        y[:5] = -1
        return x, y

config = SimpleNamespace(n_layer=2, n_head=2, n_embd=16, vocab_size=3, block_size=11, attn_pdrop=0.1)
model = GPT(config).to(device)
optimizer = model.configure_optimizers()
loader = DataLoader(SortDataset(), sampler=torch.utils.data.RandomSampler(SortDataset(), replacement=True,
num_samples=320),
                    shuffle=False, pin_memory=False, batch_size=16)
for batch in loader:
    x, y = [t.to(device) for t in batch]
    logits, loss = model(x, y)
    model.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
model.eval()
out = model.generate(torch.zeros(2, 6, dtype=torch.long, device=device), 5, do_sample=True, top_k=2)
assert out.shape == (2, 11) and (out[:, 6:] < 3).all()
n_params = sum(p.numel() for p in model.transformer.parameters())
assert n_params > 1000
"""

NANOGPT = """
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
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(vocab, n_embd), ln=LayerNorm(n_embd,
        bias=False))) self.attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.flash = hasattr(torch.nn.functional, 'scaled_dot_product_attention')
    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx)
        B, T, C = x.size()
        q, k, v = (t.view(B, T, 2, C // 2).transpose(1, 2) for t in self.attn(self.transformer.ln(x)).split(C,
        dim=2)) y = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=0.1 if self.training else 0, is_causal=True)
        x = x + y.transpose(1, 2).contiguous().view(B, T, C)
        if targets is not None:
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1),
            ignore_index=-1)
        return self.lm_head(x[:, [-1], :]), None

dtype = 'bfloat16'
ptdtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
device_type = 'cuda' if 'cuda' in device else 'cpu'
ctx = torch.amp.autocast(device_type=device_type, dtype=ptdtype)
torch.backends.cuda.matmul.allow_tf32 = False
data = np.tile(np.arange(7, dtype=np.uint16), 60)

def get_batch(split):
    ix = torch.randint(len(data) - 8, (8,))
    x = torch.stack([torch.from_numpy((data[i:i+8]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i+1:i+1+8]).astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)

model = Model(7, 8, 8).to(device)
scaler = torch.amp.GradScaler(device_type, enabled=(dtype == 'float16'))
params = {pn: p for pn, p in model.named_parameters() if p.requires_grad}
groups = [{'params': [p for n, p in params.items() if p.dim() >= 2], 'weight_decay': 1e-1},
          {'params': [p for n, p in params.items() if p.dim() < 2], 'weight_decay': 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))

@torch.no_grad()
def estimate_loss():
    model.eval()
    found = torch.zeros(3)
    for k in range(3):
        X, Y = get_batch('val')
        with ctx:
            logits, loss = model(X, Y)
        found[k] = loss.item()
    model.train()
    return found.mean()

X, Y = get_batch('train')
for it in range(20):
    lr = 1e-2 * min(1, (it + 1) / 5)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr
    for micro_step in range(2):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / 2
        X, Y = get_batch('train')
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item() * 2)
assert estimate_loss() < losses[0]
checkpoint = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'iter_num': 20,
'best_val_loss': losses[-1]} torch.save(checkpoint, os.path.join(folder, 'ckpt.pt'))
checkpoint = torch.load(os.path.join(folder, 'ckpt.pt'), map_location=device)
state_dict = checkpoint['model']
unwanted_prefix = '_orig_mod.'
for k, v in list(state_dict.items()):
    if k.startswith(unwanted_prefix):
        state_dict[k[len(unwanted_prefix):]] = state_dict.pop(k)
model.load_state_dict(state_dict)
optimizer.load_state_dict(checkpoint['optimizer'])
assert checkpoint['iter_num'] == 20
"""

CIFAR = """
class BasicBlock(nn.Module):
    expansion = 1
    def __init__(self, in_planes, planes, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion*planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, self.expansion*planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(self.expansion*planes))
    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        out = F.relu(out)
        return out

class ResNet(nn.Module):
    def __init__(self, block, num_blocks, num_classes=3):
        super(ResNet, self).__init__()
        self.in_planes = 4
        self.conv1 = nn.Conv2d(3, 4, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = self._make_layer(block, 4, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(block, 8, num_blocks[1], stride=2)
        self.linear = nn.Linear(8*block.expansion, num_classes)
    def _make_layer(self, block, planes, num_blocks, stride):
        layers = []
        for stride in [stride] + [1]*(num_blocks-1):
            layers.append(block(self.in_planes, planes, stride))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*layers)
    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer2(self.layer1(out))
        out = F.avg_pool2d(out, 4)
        out = out.view(out.size(0), -1)
        return self.linear(out)

x = torch.randn(48, 3, 8, 8)
t = torch.arange(48) % 3
x[range(48), t] += 2
trainloader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, t), batch_size=16, shuffle=True,
num_workers=0) net = ResNet(BasicBlock, [1, 1]).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
for epoch in range(5):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    losses.append(train_loss)
    scheduler.step()
net.eval()
with torch.no_grad():
    assert net(x.to(device)).argmax(dim=1).eq(t.to(device)).float().mean() > 0.5
assert scheduler.get_last_lr()[0] < 0.1
"""

PPO = """
def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer

class Agent(nn.Module):
    def __init__(self, obs, actions, continuous):
        super().__init__()
        self.continuous = continuous
        self.critic = nn.Sequential(layer_init(nn.Linear(obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1),
        std=1.0)) self.actor = nn.Sequential(layer_init(nn.Linear(obs, 16)), nn.Tanh(),
        layer_init(nn.Linear(16, actions), std=0.01)) self.actor_logstd = nn.Parameter(torch.zeros(1,
        actions))
    def get_value(self, x):
        return self.critic(x)
    def get_action_and_value(self, x, action=None):
        out = self.actor(x)
        if self.continuous:
            probs = Normal(out, torch.exp(self.actor_logstd.expand_as(out)))
            if action is None:
                action = probs.sample()
            return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)
        probs = Categorical(logits=out)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)

for continuous in (False, True):
    num_steps, num_envs, gamma, gae_lambda, clip_coef = 8, 4, 0.99, 0.95, 0.2
    agent = Agent(3, 2, continuous).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    obs = torch.randn((num_steps, num_envs) + (3,)).to(device)
    actions = torch.zeros((num_steps, num_envs) + ((2,) if continuous else ())).to(device)
    logprobs, rewards, dones, values = (torch.zeros((num_steps, num_envs)).to(device) for _ in range(4))
    for step in range(num_steps):
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(obs[step])
            values[step] = value.flatten()
        actions[step] = action
        logprobs[step] = logprob
        rewards[step] = torch.tensor(np.ones(num_envs, dtype="float32")).to(device).view(-1)
    with torch.no_grad():
        next_value = agent.get_value(obs[-1]).reshape(1, -1)
        advantages = torch.zeros_like(rewards).to(device)
        lastgaelam = 0
        for t in reversed(range(num_steps)):
            nextnonterminal = 1.0 - dones[t]
            nextvalues = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
            advantages[t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
        returns = advantages + values
    b_obs, b_logprobs = obs.reshape((-1, 3)), logprobs.reshape(-1)
    b_actions = actions.reshape((-1,) + ((2,) if continuous else ()))
    b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
    b_inds = np.arange(num_steps * num_envs)
    clipfracs = []
    for epoch in range(8):
        np.random.shuffle(b_inds)
        for start in range(0, 32, 16):
            mb_inds = b_inds[start:start + 16]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                b_obs[mb_inds], b_actions[mb_inds] if continuous else b_actions.long()[mb_inds])
            logratio = newlogprob - b_logprobs[mb_inds]
            ratio = logratio.exp()
            with torch.no_grad():
                old_approx_kl = (-logratio).mean()
                approx_kl = ((ratio - 1) - logratio).mean()
                clipfracs += [((ratio - 1.0).abs() > clip_coef).float().mean().item()]
            mb_advantages = b_advantages[mb_inds]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss1 = -mb_advantages * ratio
            pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
            pg_loss = torch.max(pg_loss1, pg_loss2).mean()
            newvalue = newvalue.view(-1)
            v_loss_unclipped = (newvalue - b_returns[mb_inds]) ** 2
            v_clipped = b_values[mb_inds] + torch.clamp(newvalue - b_values[mb_inds], -clip_coef, clip_coef)
            v_loss_clipped = (v_clipped - b_returns[mb_inds]) ** 2
            v_loss = 0.5 * torch.max(v_loss_unclipped, v_loss_clipped).mean()
            loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        losses.append(v_loss.item())
    y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
    explained_var = 1 - np.var(y_true - y_pred) / np.var(y_true)
    if not continuous:
        losses.clear()
"""

VIT = """
def pair(t):
    return t if isinstance(t, tuple) else (t, t)

class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden_dim), nn.GELU(),
        nn.Dropout(dropout),
                                 nn.Linear(hidden_dim, dim), nn.Dropout(dropout))
    def forward(self, x):
        return self.net(x)

class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4, dropout=0.):
        super().__init__()
        inner_dim = dim_head * heads
        project_out = not (heads == 1 and dim_head == dim)
        self.heads, self.scale = heads, dim_head ** -0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(dropout)) if project_out else
        nn.Identity()
    def forward(self, x):
        x = self.norm(x)
        b, n, _ = x.shape
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.reshape(b, n, self.heads, -1).permute(0, 2, 1, 3), qkv)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        attn = self.dropout(self.attend(dots))
        out = torch.einsum('b h i j, b h j d -> b h i d', attn, v)
        return self.to_out(out.permute(0, 2, 1, 3).flatten(2))

class ViT(nn.Module):
    def __init__(self, *, image_size, patch_size, num_classes, dim, depth, channels=3, pool='cls',
    dropout=0.1):
        super().__init__()
        (ih, iw), (self.ph, self.pw) = pair(image_size), pair(patch_size)
        num_patches = (ih // self.ph) * (iw // self.pw)
        patch_dim = channels * self.ph * self.pw
        self.to_patch_embedding = nn.Sequential(nn.LayerNorm(patch_dim), nn.Linear(patch_dim, dim),
        nn.LayerNorm(dim)) self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Attention(dim), FeedForward(dim, dim * 2, dropout=dropout)]))
        self.norm, self.pool = nn.LayerNorm(dim), pool
        self.to_latent = nn.Identity()
        self.mlp_head = nn.Linear(dim, num_classes)
    def forward(self, img):
        b, c, h, w = img.shape
        x = img.reshape(b, c, h // self.ph, self.ph, w // self.pw, self.pw).permute(0, 2, 4, 3, 5, 1)
        x = self.to_patch_embedding(x.reshape(b, -1, self.ph * self.pw * c))
        b, n, _ = x.shape
        cls_tokens = self.cls_token.repeat(b, 1, 1)
        x = torch.cat((cls_tokens, x), dim=1)
        x += self.pos_embedding[:, :(n + 1)]
        x = self.dropout(x)
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        x = self.norm(x)
        x = x.mean(dim=1) if self.pool == 'mean' else x[:, 0]
        return self.mlp_head(self.to_latent(x))

def posemb_sincos_2d(h, w, dim, temperature=10000, dtype=torch.float32):
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    omega = torch.arange(dim // 4) / (dim // 4 - 1)
    omega = 1.0 / (temperature ** omega)
    y = y.flatten()[:, None] * omega[None, :]
    x = x.flatten()[:, None] * omega[None, :]
    return torch.cat((x.sin(), x.cos(), y.sin(), y.cos()), dim=1).type(dtype)

assert posemb_sincos_2d(4, 4, 16).shape == (16, 16)
v = ViT(image_size=8, patch_size=4, num_classes=2, dim=8, depth=2).to(device)
img = torch.randn(16, 3, 8, 8, device=device)
label = torch.arange(16, device=device) % 2
img[label == 1] *= 0.2
optimizer = torch.optim.Adam(v.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.9)
for _ in range(20):
    loss = nn.CrossEntropyLoss()(v(img), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
v.eval()
preds = v(img)
assert preds.shape == (16, 2) and torch.allclose(preds.softmax(dim=-1).sum(dim=-1), torch.ones(16,
device=device))
"""

MAKEMORE = """
words = ["emma", "olivia", "ava", "isabella", "sophia", "mia", "amelia", "harper"]
chars = sorted(list(set(''.join(words))))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi['.'] = 0
N = torch.zeros((len(stoi), len(stoi)), dtype=torch.int32)
X, Y = [], []
for w in words:
    context = [0] * 3
    for ch in w + '.':
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
W1 = torch.randn((12, 20), generator=g) * (5 / 3) / (12 ** 0.5)
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
"""

EXAMPLES = """
class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
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
    test_loss = F.nll_loss(output, target, reduction='sum').item()
    pred = output.argmax(dim=1, keepdim=True)
    correct = pred.eq(target.view_as(pred)).sum().item()

class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 16), nn.Linear(16, 2), nn.Linear(16, 2)
        self.fc3, self.fc4 = nn.Linear(2, 16), nn.Linear(16, 64)
    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)
    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5*logvar)
        eps = torch.randn_like(std)
        return mu + eps*std
    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

vae = VAE().to(device)
optimizer = optim.Adam(vae.parameters(), lr=1e-3)
x = torch.rand(8, 1, 8, 8, device=device)
recon, mu, logvar = vae(x)
BCE = F.binary_cross_entropy(recon, x.view(-1, 64), reduction='sum')
KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
(BCE + KLD).backward()
optimizer.step()

def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find('BatchNorm') != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)

netG = nn.Sequential(nn.ConvTranspose2d(5, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                     nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh()).to(device)
netD = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
                     nn.Conv2d(4, 1, 4, 1, 0, bias=False), nn.Sigmoid()).to(device)
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
        super(RNNModel, self).__init__()
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
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz,
        self.nhid))

def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)

source = torch.LongTensor([i % 5 for i in range(41)]) if hasattr(torch, "LongTensor") else torch.arange(41) %
5 source = source[:40].view(4, -1).t().contiguous().to(device)
rnn = RNNModel('LSTM', 5, 6, 6, 2).to(device)
hidden = rnn.init_hidden(4)
for i in range(0, 8, 4):
    rnn.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = rnn(source[i:i+4], hidden)
    loss = nn.NLLLoss()(output, source[i+1:i+5].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(rnn.parameters(), 0.25)
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(p.grad, alpha=-1.0)

class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
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

upscale = nn.Sequential(nn.Conv2d(1, 4, (3, 3), (1, 1), (1, 1)), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1),
nn.PixelShuffle(2)) nn.init.orthogonal_(upscale[0].weight, nn.init.calculate_gain('relu'))
assert upscale(torch.rand(2, 1, 4, 4)).shape == (2, 1, 8, 8)
style = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True))
up = F.interpolate(style(torch.rand(1, 3, 4, 4)), mode='nearest', scale_factor=2)
b, ch, h, w = up.size()
features = up.view(b, ch, w * h)
gram = features.bmm(features.transpose(1, 2)) / (ch * h * w)
assert gram.shape == (1, 4, 4)

class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
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
"""

SCRIPTS = {
    "mingpt": MINGPT,
    "nanogpt": NANOGPT,
    "cifar": CIFAR,
    "ppo": PPO,
    "vit": VIT,
    "makemore": MAKEMORE,
    "examples": EXAMPLES,
}
HEAD = """
import math
import os
from types import SimpleNamespace
import numpy as np
import {lib} as torch
import {lib}.nn as nn
import {lib}.nn.functional as F
import {lib}.optim as optim
from {lib}.utils.data import DataLoader, Dataset
from {lib}.utils.data.dataloader import DataLoader
from {lib}.distributions.categorical import Categorical
from {lib}.distributions.normal import Normal
torch.manual_seed(1337)
np.random.seed(1337)
losses = []
"""


def execute(script, lib, device, folder):
    scope = {"device": device, "folder": str(folder), "__name__": "script"}
    exec(compile(HEAD.format(lib=lib) + SCRIPTS[script], f"<{script}>", "exec"), scope)
    losses = np.array(scope["losses"])
    assert np.isfinite(losses).all() and losses[-3:].mean() < losses[:3].mean()


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs_with_lucid(script, device, tmp_path):
    execute(script, "lucid", device, tmp_path)


@pytest.mark.parametrize("script", SCRIPTS)
def test_is_a_pytorch_script(script, tmp_path):
    pytest.importorskip("torch")
    execute(script, "torch", "cpu", tmp_path)


# Names that the scripts of nanoGPT, minGPT, makemore, pytorch-cifar, pytorch/examples, vit-pytorch and
# cleanrl use, without sparse, nested, quantised and ONNX ones and without switches between vendors' attention
# kernels.
NAMES = """
    __version__ accelerator.current_accelerator accelerator.device_count accelerator.is_available
    accelerator.set_device_index allclose amp.autocast arange argmax as_tensor backends.cuda.matmul.allow_tf32
    backends.cudnn.allow_tf32 backends.cudnn.benchmark backends.cudnn.deterministic backends.mps.is_available
    bfloat16 bool bucketize cat clamp clip compile cos cuda.amp.GradScaler cuda.device_count
    cuda.get_device_properties cuda.is_available cuda.is_bf16_supported cuda.manual_seed cuda.manual_seed_all
    cuda.set_device cuda.synchronize device diag distributed.ReduceOp.SUM distributed.all_reduce
    distributed.destroy_process_group distributed.init_process_group distributions.Categorical
    distributions.Normal distributions.categorical.Categorical distributions.kl_divergence
    distributions.normal.Normal double einsum empty equal erfinv exp eye fft.fft2 finfo flatten float float16
    float32 float64 FloatTensor fmod from_numpy full gather Generator inference_mode int32 int64 is_tensor
    linspace load log log1p long LongTensor manual_seed matmul max mean meshgrid min mm multinomial
    multiprocessing.Process multiprocessing.set_start_method multiprocessing.spawn nn.AdaptiveAvgPool2d
    nn.AvgPool2d nn.BatchNorm1d nn.BatchNorm2d nn.BCELoss nn.Conv1d nn.Conv2d nn.Conv3d nn.ConvTranspose2d
    nn.CrossEntropyLoss nn.DataParallel nn.Dropout nn.Dropout2d nn.Embedding nn.Flatten
    nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.binary_cross_entropy
    nn.functional.conv2d nn.functional.cross_entropy nn.functional.dropout nn.functional.elu
    nn.functional.gelu nn.functional.interpolate nn.functional.kl_div nn.functional.l1_loss
    nn.functional.layer_norm nn.functional.linear nn.functional.log_softmax nn.functional.max_pool2d
    nn.functional.mse_loss nn.functional.nll_loss nn.functional.normalize nn.functional.pad nn.functional.relu
    nn.functional.scaled_dot_product_attention nn.functional.sigmoid nn.functional.silu
    nn.functional.smooth_l1_loss nn.functional.softmax nn.functional.softplus nn.functional.tanh nn.GELU
    nn.Hardswish nn.Identity nn.init.calculate_gain nn.init.constant nn.init.constant_ nn.init.kaiming_normal
    nn.init.kaiming_normal_ nn.init.normal nn.init.normal_ nn.init.ones_ nn.init.orthogonal_
    nn.init.trunc_normal_ nn.init.uniform_ nn.init.xavier_normal_ nn.init.xavier_uniform_ nn.init.zeros_
    nn.InstanceNorm2d nn.LayerNorm nn.LeakyReLU nn.Linear nn.LSTM nn.LSTMCell nn.MaxPool2d nn.MaxPool3d
    nn.Module nn.ModuleDict nn.ModuleList nn.modules.activation.MultiheadAttention nn.modules.activation.ReLU
    nn.modules.container.ModuleList nn.modules.conv.Conv2d nn.modules.dropout.Dropout nn.modules.linear.Linear
    nn.modules.normalization.LayerNorm nn.modules.pixelshuffle.PixelShuffle nn.modules.rnn.GRU
    nn.modules.rnn.LSTM nn.modules.rnn.RNN nn.modules.sparse.Embedding
    nn.modules.transformer.TransformerEncoder nn.modules.transformer.TransformerEncoderLayer nn.MSELoss
    nn.NLLLoss nn.parallel.DistributedDataParallel nn.parallel.data_parallel nn.Parameter nn.ParameterList
    nn.PixelShuffle nn.ReflectionPad2d nn.ReLU nn.RNN nn.Sequential nn.Sigmoid nn.SiLU nn.Softmax nn.Tanh
    nn.Transformer nn.Unflatten nn.Unfold nn.utils.clip_grad_norm_
    nn.utils.parametrize.register_parametrization nn.utils.rnn.pad_sequence no_grad normal ones ones_like
    optim.Adadelta optim.Adam optim.AdamW optim.LBFGS optim.lr_scheduler.CosineAnnealingLR
    optim.lr_scheduler.StepLR optim.RAdam optim.SGD pi pow prod profiler.profile profiler.ProfilerActivity.CPU
    profiler.ProfilerActivity.CUDA profiler.schedule profiler.tensorboard_trace_handler rand randint randn
    randn_like randperm repeat_interleave roll save serialization.safe_globals set_default_device sigmoid sin
    softmax sqrt stack sum tanh tensor Tensor topk trapezoid tril triu uint8 unbind unique
    utils._pytree.tree_flatten utils._pytree.tree_unflatten utils.data.DataLoader
    utils.data.dataloader.DataLoader utils.data.Dataset utils.data.distributed.DistributedSampler
    utils.data.RandomSampler utils.data.Subset utils.tensorboard.SummaryWriter var view_as_real where zeros
    zeros_like
""".split()
MISSING = {
    *("backends.cudnn.allow_tf32", "backends.cudnn.benchmark", "backends.cudnn.deterministic"),
    "backends.mps.is_available",
    *("distributed.ReduceOp.SUM", "distributed.all_reduce", "distributed.destroy_process_group"),
    "distributed.init_process_group",
    *("multiprocessing.Process", "multiprocessing.set_start_method", "multiprocessing.spawn"),
    *("nn.DataParallel", "nn.parallel.DistributedDataParallel", "nn.parallel.data_parallel"),
    *("nn.init.constant", "nn.init.kaiming_normal", "nn.init.normal"),  # deprecated in PyTorch
    "nn.utils.parametrize.register_parametrization",
    *("profiler.profile", "profiler.ProfilerActivity.CPU", "profiler.ProfilerActivity.CUDA"),
    *("profiler.schedule", "profiler.tensorboard_trace_handler"),
    "serialization.safe_globals",
    *("utils._pytree.tree_flatten", "utils._pytree.tree_unflatten"),
}


def find(name):
    """The object of a dotted name below lucid, importing modules on the way."""
    found, path = importlib.import_module("lucid"), "lucid"
    for part in name.split("."):
        path += f".{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(path) if path not in sys.modules else sys.modules[path]
    return found


@pytest.mark.parametrize("name", sorted(set(NAMES) - MISSING))
def test_name_is_there(name):
    find(name)


@pytest.mark.parametrize("name", sorted(MISSING))
def test_missing_name_is_still_missing(name):
    with pytest.raises(ImportError):
        find(name)
