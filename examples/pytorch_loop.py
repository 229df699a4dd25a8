"""Your own PyTorch loop: a loss, a metric and a set rule of shortlist, nothing else changed."""

import torch

from shortlist.data import AmbiguousWorld
from shortlist.nn import LMLNLL
from shortlist.sets import AverageK

torch.manual_seed(0)
data = AmbiguousWorld().sample(4000, seed=0)  # 89 look-alike species; any tensors will do
train, val, test = (data.part(name) for name in ("train", "val", "test"))
model = torch.nn.Sequential(torch.nn.Linear(train.inputs.shape[0], 128), torch.nn.ReLU(), torch.nn.Linear(128, 89))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss = LMLNLL(k=3)  # likelihood that the true label is among three

for _ in range(5):
    for rows in torch.randperm(len(train)).split(128):
        batch = train.batch(rows)
        optimizer.zero_grad()
        loss(model(batch.inputs), batch.targets).backward()
        optimizer.step()

with torch.no_grad():
    logits = {part: model(rows.inputs.batch(torch.arange(len(rows)))) for part, rows in (("val", val), ("test", test))}
rule = AverageK(3).fit(logits["val"], from_logits=True)
sets = rule.predict(logits["test"], names=data.label_names)
covered = sets.contains(test.targets).float().mean()
print(f"{sets.sizes.float().mean():.2f} labels on average contain the true one in {covered:.0%} of the rows")
