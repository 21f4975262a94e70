"""Stage outputs of torchvision's Swin-T with weights and input from the golden set's value formula.

Writes testdata/swin_t.json. Usage: python tools/swin_reference.py
"""
import json
import pathlib

import numpy as np
import torch
from torchvision.models import swin_t

M = (1 << 64) - 1


def u(name, count):
    h = 14695981039346656037
    for b in name.encode():
        h = ((h ^ b) * 1099511628211) & M
    with np.errstate(over="ignore"):
        s = np.arange(count, dtype=np.uint64) + np.uint64((h + 0x9E3779B97F4A7C15) & M)
        s = (s ^ (s >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        s = (s ^ (s >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        s = s ^ (s >> np.uint64(31))
    return (s >> np.uint64(11)).astype(np.float64) * 2.0**-53 * 2 - 1


def parameter(name, shape):
    v = u(name, int(np.prod(shape)))
    if len(shape) > 1:
        v = v * np.sqrt(3 / np.prod(shape[1:]))
    else:
        v = 1 + 0.1 * v if name.endswith("weight") else 0.1 * v
    return torch.from_numpy(v.astype(np.float32).reshape(shape)).double()


def stages(net, x):
    found = []
    for i, layer in enumerate(net.features):
        x = layer(x)
        if i % 2 == 1:
            found.append(x.permute(0, 3, 1, 2))
    return found


net = swin_t(weights=None).double().eval()
state = {n: v if "index" in n else parameter(n, v.shape) for n, v in net.state_dict().items()}
net.load_state_dict(state)
shape = [1, 3, 45, 70]
x = torch.from_numpy(u("cond", int(np.prod(shape))).astype(np.float32).reshape(shape)).double()
cases = {}
with torch.no_grad():
    cases["rgb"] = {"shape": shape, "stages": stages(net, x)}
    stem = net.features[0][0]
    grey = torch.nn.Conv2d(1, 96, 4, 4).double()
    grey.weight.copy_(stem.weight.mean(1, keepdim=True))
    grey.bias.copy_(stem.bias)
    net.features[0][0] = grey
    shape = [1, 1, 45, 70]
    cases["grey"] = {"shape": shape, "stages": stages(net, x[:, :1])}
for case in cases.values():
    case["stages"] = [
        {"shape": list(s.shape), "l2": s.norm().item(), "sum": s.sum().item(), "first": s.flatten()[:8].tolist()}
        for s in case["stages"]
    ]
out = {"origin": "tools/swin_reference.py, torchvision's swin_t in f64", **cases}
pathlib.Path("testdata").mkdir(exist_ok=True)
pathlib.Path("testdata/swin_t.json").write_text(json.dumps(out, indent=1) + "\n")
