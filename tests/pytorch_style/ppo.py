"""Proximal policy optimisation, discrete and continuous, in the style of CleanRL."""

# ruff: noqa: B007, B008

import os

import numpy as np

import lucid as torch
import lucid.nn as nn
import lucid.optim as optim
from lucid.distributions.categorical import Categorical
from lucid.distributions.normal import Normal

device = os.environ.get("DEVICE", "cpu")
torch.manual_seed(1337)
np.random.seed(1337)
losses = []


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, obs, actions, continuous):
        super().__init__()
        self.continuous = continuous
        self.critic = nn.Sequential(
            layer_init(nn.Linear(obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0)
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, actions), std=0.01)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, actions))

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
            mb_inds = b_inds[start : start + 16]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                b_obs[mb_inds], b_actions[mb_inds] if continuous else b_actions.long()[mb_inds]
            )
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
