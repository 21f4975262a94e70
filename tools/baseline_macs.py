#!/usr/bin/env python3
"""Parameters and multiply-accumulates of the baselines' own networks on 32x32 images, counted from their published structure.

Prints the table of docs/PERFORMANCE.md. Needs the standard library only. What is counted is what `crossfade cost` counts:
convolutions, dense layers and the two products of attention. The parameter counts check the structure against the papers.

    tools/baseline_macs.py
"""


class Net:
    """Counts layers as they are added; `side` is that of the feature maps."""

    def __init__(self):
        self.parameters, self.macs = 0, 0

    def conv(self, cin, cout, side, kernel=3, bias=True):
        self.parameters += cin * cout * kernel**2 + bias * cout
        self.macs += cin * cout * kernel**2 * side**2

    def dense(self, cin, cout, bias=True):
        self.parameters += cin * cout + bias * cout
        self.macs += cin * cout

    def norm(self, c):
        self.parameters += 2 * c

    def attention(self, c, side):
        """Norm, query, key and value, the two products, projection."""
        self.norm(c)
        for _ in range(4):
            self.conv(c, c, side, 1)
        self.macs += 2 * c * side**4

    def block(self, cin, cout, side, embedding, project=None):
        """A residual block of DDPM; `side` is the one after resampling. `project`: a 1x1 convolution in the shortcut."""
        self.norm(cin)
        self.conv(cin, cout, side)
        self.dense(embedding, cout)
        self.norm(cout)
        self.conv(cout, cout, side)
        if cin != cout if project is None else project:
            self.conv(cin, cout, side, 1)


def ddpm(width=128, mult=(1, 2, 2, 2), blocks=2, attention=(16,), side=32):
    """DDPM (Ho et al. 2020): strided convolutions between levels, attention after every block of its levels."""
    net, embedding, c, skips = Net(), 4 * width, width, [width]
    net.dense(width, embedding)
    net.dense(embedding, embedding)
    net.conv(3, width, side)
    for level, m in enumerate(mult):
        for _ in range(blocks):
            net.block(c, m * width, side, embedding)
            c = m * width
            if side in attention:
                net.attention(c, side)
            skips.append(c)
        if level + 1 < len(mult):
            side //= 2
            net.conv(c, c, side)
            skips.append(c)
    net.block(c, c, side, embedding)
    net.attention(c, side)
    net.block(c, c, side, embedding)
    for level, m in reversed(list(enumerate(mult))):
        for _ in range(blocks + 1):
            net.block(c + skips.pop(), m * width, side, embedding)
            c = m * width
            if side in attention:
                net.attention(c, side)
        if level > 0:
            side *= 2
            net.conv(c, c, side)
    net.norm(c)
    net.conv(c, 3, side)
    return net


def score_sde(blocks, pyramid, width=128, mult=(1, 2, 2, 2), attention=(16,), side=32, inputs=3):
    """DDPM++ and, with the pyramid of downsampled inputs, NCSN++ (Song et al. 2021): blocks of BigGAN resample."""
    net, embedding, c, skips, image = Net(), 4 * width, width, [width], inputs
    net.dense(2 * width if pyramid else width, embedding)
    net.dense(embedding, embedding)
    net.conv(inputs, width, side)
    for level, m in enumerate(mult):
        for _ in range(blocks):
            net.block(c, m * width, side, embedding)
            c = m * width
            if side in attention:
                net.attention(c, side)
            skips.append(c)
        if level + 1 < len(mult):
            side //= 2
            net.block(c, c, side, embedding, project=True)
            if pyramid:
                net.conv(image, c, side)
                image = c
            skips.append(c)
    net.block(c, c, side, embedding)
    net.attention(c, side)
    net.block(c, c, side, embedding)
    for level, m in reversed(list(enumerate(mult))):
        for _ in range(blocks + 1):
            net.block(c + skips.pop(), m * width, side, embedding)
            c = m * width
        if side in attention:
            net.attention(c, side)
        if level > 0:
            side *= 2
            net.block(c, c, side, embedding, project=True)
    net.norm(c)
    net.conv(c, 3, side)
    return net


def edm(width=128, mult=(2, 2, 2), blocks=4, attention=(16,), side=32, labels=9):
    """EDM's DDPM++ (Karras et al. 2022)."""
    net, embedding, c, skips = Net(), 4 * width, width, [width]
    net.dense(labels, width, bias=False)
    net.dense(width, embedding)
    net.dense(embedding, embedding)
    net.conv(3, width, side)
    for level, m in enumerate(mult):
        if level > 0:
            side //= 2
            net.block(c, c, side, embedding, project=True)
            skips.append(c)
        for _ in range(blocks):
            net.block(c, m * width, side, embedding)
            c = m * width
            if side in attention:
                net.attention(c, side)
            skips.append(c)
    net.block(c, c, side, embedding)
    net.attention(c, side)
    net.block(c, c, side, embedding)
    for level, m in reversed(list(enumerate(mult))):
        if level + 1 < len(mult):
            side *= 2
            net.block(c, c, side, embedding, project=True)
        for _ in range(blocks + 1):
            net.block(c + skips.pop(), m * width, side, embedding)
            c = m * width
        if side in attention:
            net.attention(c, side)
    net.norm(c)
    net.conv(c, 3, side)
    return net


ROWS = [
    ("DDPM (128; 1,2,2,2; 2 blocks)", ddpm(), "36M", "7"),
    ("DDPM++ of score-SDE (4 blocks)", score_sde(4, False), "", ""),
    ("NCSN++ of score-SDE (4 blocks)", score_sde(4, True), "", ""),
    ("DDPM++ deep (8 blocks)", score_sde(8, False), "103M (SDE)", "12"),
    ("NCSN++ deep (8 blocks)", score_sde(8, True), "103M (SDE)", "12"),
    ("NCSN++ deep, image and velocity in (CLD)", score_sde(8, True, inputs=6), "103M", "13"),
    ("EDM's DDPM++ (128; 2,2,2; 4 blocks)", edm(), "54M", "10"),
]

if __name__ == "__main__":
    print("| network | parameters | MACs per evaluation | the paper: parameters | the paper: G |")
    print("|---|---|---|---|---|")
    for name, net, parameters, cost in ROWS:
        print(f"| {name} | {net.parameters / 1e6:.2f}M | {net.macs / 1e9:.2f} G | {parameters} | {cost} |")
