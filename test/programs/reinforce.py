"""Policy gradients on a small environment: an agent on a line that has to reach its end."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill


class Line:
    """Positions 0 to 5; the right end is worth 1, every step costs 0.1."""

    def reset(self):
        self.place = 2
        return self.observe()

    def observe(self):
        return np.eye(6, dtype=np.float32)[self.place]

    def step(self, action):
        self.place = min(5, max(0, self.place + (1 if action else -1)))
        return self.observe(), (1.0 if self.place == 5 else -0.1), self.place in (0, 5)


class ActorCritic:
    def __init__(self, in_features=6, out_features=2, hidden=16):
        self.l1 = nn.Linear(in_features, hidden)
        self.l2 = nn.Linear(hidden, out_features)
        self.c1 = nn.Linear(in_features, hidden)
        self.c2 = nn.Linear(hidden, 1)

    def __call__(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        x = self.l1(obs).tanh()
        return self.l2(x).log_softmax(), self.c2(self.c1(obs).relu())


model = ActorCritic()
fill(get_state_dict(model), seed=71)
opt = nn.optim.Adam(get_parameters(model), lr=1e-2)
HORIZON = 16


@TinyJit
def get_action(obs: Tensor) -> Tensor:
    return model(obs)[0].exp().realize()


@TinyJit
@Context(TRAINING=1)
def train_step(x, selected_action, reward, old_log_dist, alive):
    log_dist, value = model(x)
    action_mask = (selected_action.reshape(-1, 1) == Tensor.arange(2).reshape(1, -1)).float()
    advantage = reward.reshape(-1, 1) - value
    masked_advantage = action_mask * advantage.detach() * alive.reshape(-1, 1)
    # clipped ratios, as in PPO
    ratios = (log_dist - old_log_dist).exp()
    clipped = ratios.clip(1 - 0.2, 1 + 0.2)
    action_loss = -(masked_advantage * ratios).minimum(masked_advantage * clipped).sum(-1).mean()
    entropy_loss = (log_dist.exp() * log_dist).sum(-1).mean()
    critic_loss = (advantage.square() * alive.reshape(-1, 1)).mean()
    opt.zero_grad()
    (action_loss + entropy_loss * 0.0005 + critic_loss).backward()
    Tensor.realize(action_loss, entropy_loss, critic_loss, *opt.schedule_step())
    return action_loss, entropy_loss, critic_loss


env, random = Line(), np.random.default_rng(72)
history, returns = [], []
for _ in range(4):
    obs, done, rewards, observed, acted = env.reset(), False, [], [], []
    while not done and len(rewards) < HORIZON:
        probabilities = get_action(Tensor(obs)).numpy()
        action = int(random.random() < probabilities[1])
        observed.append(obs)
        acted.append(action)
        obs, reward, done = env.step(action)
        rewards.append(reward)
    returns.append(sum(rewards))
    discounts = np.power(0.99, np.arange(len(rewards)))
    to_go = [np.sum(rewards[i:] * discounts[: len(rewards) - i]) for i in range(len(rewards))]
    rest = HORIZON - len(rewards)
    x = Tensor(np.pad(np.array(observed), ((0, rest), (0, 0))))
    a = Tensor(np.pad(acted, (0, rest)).astype(np.int32))
    r = Tensor(np.pad(to_go, (0, rest)).astype(np.float32))
    alive = Tensor((np.arange(HORIZON) < len(rewards)).astype(np.float32))
    old = model(x)[0].detach().contiguous().realize()
    for _ in range(2):
        history.append([loss.item() for loss in train_step(x, a, r, old, alive)])

states = Tensor.eye(6, dtype=dtypes.float32)
results = {
    "losses": np.array(history),
    "returns": np.array(returns),
    "policy": model(states)[0].exp().numpy(),
    "values": model(states)[1].numpy(),
}
