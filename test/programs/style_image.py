"""An image is optimised: its features follow one picture, their correlations another."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.nn.state import get_state_dict

from test.programs.weights import fill


class Features:
    def __init__(self):
        self.convs = [nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1, stride=2)]

    def __call__(self, x):
        mean = Tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
        x, seen = (x - mean) / 0.225, []
        for conv in self.convs:
            x = conv(x).relu()
            seen.append(x)
            x = x.avg_pool2d((2, 2))
        return seen


def gram(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    flat = x.view(b, c, h * w)
    return flat @ flat.transpose(1, 2) / (c * h * w)


net = Features()
fill(get_state_dict(net), seed=141)
for parameter in nn.state.get_parameters(net):
    parameter.is_param_(False)
random = np.random.default_rng(142)
content = Tensor(random.random((1, 3, 12, 12)).astype(np.float32))
style = Tensor(random.random((1, 3, 12, 12)).astype(np.float32))
content_features = [f.detach().realize() for f in net(content)]
style_grams = [gram(f).detach().realize() for f in net(style)]
image = content.clone().realize()
opt = nn.optim.Adam([image], lr=0.05)


@TinyJit
@Context(TRAINING=1)
def step():
    opt.zero_grad()
    features = net(image)
    content_loss = (features[1] - content_features[1]).square().mean()
    style_loss = sum(
        (gram(f) - g).square().sum() for f, g in zip(features, style_grams, strict=True)
    )
    across = (image[..., 1:] - image[..., :-1]).abs().mean()
    down = (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
    loss = content_loss + 10 * style_loss + 0.01 * (across + down)
    loss.backward()
    return loss.realize(*opt.schedule_step())


losses = [step().item() for _ in range(4)]
blurred = image.pad((1, 1, 1, 1), mode="replicate").avg_pool2d((3, 3), stride=1)
results = {
    "losses": np.array(losses),
    "image": image.numpy(),
    "blurred": blurred.numpy(),
    "shown": (image[0].permute(1, 2, 0).clip(0, 1) * 255).numpy(),
}
