"""An LSTM reads handwritten digits row by row and says which digits they are.

In: the digits that come with weft, each a sequence of 8 rows of 8 pixels. Out: the accuracy after
each row (it may guess before it has seen all), lstm.checkpoint.safetensors and lstm.png, the loss
curve, in --out.
"""

from __future__ import annotations

import sys

from common import Training, arguments, draw_curve, table, write_png

from weft import Tensor, TinyJit, nn


class Reader:
    """A recurrence over the rows, and a guess after each of them."""

    def __init__(self, width: int) -> None:
        self.lstm = nn.LSTM(8, width, batch_first=True)
        self.guess = nn.Linear(width, 10)

    def __call__(self, rows: Tensor) -> Tensor:
        outputs, _ = self.lstm(rows)
        return self.guess(outputs.dropout(0.2))


def main() -> int:
    """Trains, saves, and shows how much each row helps."""
    options = arguments(__doc__, steps=800, batch=64, lr=0.02, width=96).parse_args()
    Tensor.manual_seed(options.seed)
    images, labels, test_images, test_labels = nn.datasets.digits()
    rows = (images.float() / 16).squeeze(1).realize()
    test_rows = (test_images.float() / 16).squeeze(1)
    model = Reader(options.width)
    optimizer = nn.optim.Adam(nn.state.get_parameters(model))
    training = Training("lstm", options, model, optimizer)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        chosen = Tensor.randint(options.batch, high=rows.shape[0])
        target = labels[chosen].reshape(-1, 1).expand(options.batch, 8)
        optimizer.zero_grad()
        logits = model(rows[chosen])
        loss = logits.sparse_categorical_crossentropy(target).backward()
        nn.optim.clip_grad_norm_(optimizer.params, 1.0)
        return loss.realize(*optimizer.schedule_step(), *training.schedule.schedule_step())

    training.run(step)
    known = model(test_rows).argmax(-1).eq(test_labels.reshape(-1, 1)).mean(0).tolist()
    write_png(options.out / "lstm.png", draw_curve(training.losses))
    shares = {
        f"after row {row + 1}": f"{100 * share:5.1f} %  {'#' * round(40 * share)}"
        for row, share in enumerate(known)
    }
    table({**training.rows(), **shares, "loss curve": options.out / "lstm.png"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
