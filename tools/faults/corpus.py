"""Hostile files: small on disk, large in memory, deep, cut or lying. They are made on the spot and never kept."""
import gzip
import io
import json
import struct
import zipfile
import zlib

from cases import chunk, png

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MEBI = 1 << 20


def deflated(size, byte=b"\0"):
    """A zlib stream of `size` equal bytes."""
    packer = zlib.compressobj(9)
    block = byte * MEBI
    parts = [packer.compress(block) for _ in range(size // MEBI)] + [packer.compress(byte * (size % MEBI)), packer.flush()]
    return b"".join(parts)


def bitmap(width, height, depth=8, colour=2, channels=3, before=(), interlaced=0):
    """A black PNG of any size."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    data = deflated(height * (1 + width * channels * depth // 8))
    return SIGNATURE + chunk(b"IHDR", header) + b"".join(before) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def declared_png(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def declared_jpeg(width, height, progressive):
    """Headers of a JPEG and no data."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0])
    table = bytes([0]) + bytes([1] * 64)
    codes = lambda kind: bytes([kind]) + bytes([0, 1] + [0] * 14) + b"\0"
    segment = lambda marker, body: bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body
    scan = bytes([3, 1, 0, 2, 0, 3, 0, 0, 0 if progressive else 63, 0])
    parts = [segment(0xDB, table), segment(0xC2 if progressive else 0xC0, frame)]
    parts += [segment(0xC4, codes(0)), segment(0xC4, codes(16)), segment(0xDA, scan)]
    return b"\xff\xd8" + b"".join(parts) + b"\0" * 4096 + b"\xff\xd9"


def declared_webp(width, height):
    canvas = bytes(4) + struct.pack("<I", ((width - 1) | (height - 1) << 14) & 0xFFFFFFFF)[:4]
    body = b"WEBPVP8L" + struct.pack("<I", 10) + b"\x2f" + canvas[4:8] + bytes(5)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def zip_of_entries(count):
    """A zip with so many entries in its directory, all of which are the same bytes."""
    name = b"%08d.png"
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 0, 0, 0, 0, 0, 0, 12, 0) + b"00000000.png"
    head = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0)
    directory = b"".join(head + name % k for k in range(count))
    at = len(local)
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, len(directory), at)
    locator = struct.pack("<IIQI", 0x07064B50, 0, at + len(directory), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return local + directory + end64 + locator + end


def npy(kind, shape):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({''.join(f'{n},' for n in shape)}), }}"
    text += " " * ((64 - (len(text) + 11) % 64) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def packed(path, members):
    """A zip of deflated members; each is (name, head, number of zero bytes after it)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, head, zeros in members:
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(head)
                for _ in range(zeros // MEBI):
                    member.write(bytes(MEBI))
                member.write(bytes(zeros % MEBI))


def safetensors(path, tensors, metadata=None, sparse=True):
    """A file whose tensors, (name, shape) of f32, are a hole in it."""
    header, at = {"__metadata__": metadata or {}}, 0
    for name, shape in tensors:
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            file.truncate(8 + len(text) + at)


def torch_bomb(path, numbers):
    """What torch.save writes for {"w": zeros(numbers)}, with the storage deflated."""
    storage = b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03"
    storage += b"ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06J" + struct.pack("<i", numbers)
    storage += b"tq\x07QK\x00J" + struct.pack("<i", numbers) + b"\x85q\x08K\x01\x85q\t\x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs."
    packed(path, [("archive/data.pkl", storage, 0), ("archive/version", b"3\n", 0), ("archive/data/0", b"", 4 * numbers)])


def mat_bomb(path, size):
    """A MATLAB file whose compressed element unpacks to zeros."""
    data = deflated(size)
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x100) + b"IM" + struct.pack("<II", 15, len(data)) + data)


def cifar(folder, size):
    """Five batches with holes."""
    folder.mkdir()
    for k in range(1, 6):
        with open(folder / f"data_batch_{k}.bin", "wb") as file:
            file.truncate(size // 3073 * 3073)


def make(folder):
    """All hostile files; names are the keys of `memory.py`."""
    folder.mkdir(parents=True)
    put = lambda name, data: (folder / name).write_bytes(data)
    bomb = deflated(1000 * MEBI)
    small = lambda *extra: bitmap(8, 8, before=extra)
    put("text.png", small(*[chunk(b"zTXt", b"crossfade\0\0" + bomb)] * 4))
    put("itxt.png", small(*[chunk(b"iTXt", b"crossfade\0\1\0\0\0" + bomb)] * 4))
    put("profile.png", small(chunk(b"iCCP", b"icc\0\0" + bomb)))
    put("deep.png", bitmap(8192, 8192, 16, 6, 4))
    put("interlaced.png", bitmap(8192, 8192, 16, 6, 4, interlaced=1))
    put("grey.png", bitmap(8192, 8192, 8, 0, 1))
    put("wide.png", bitmap(64 * MEBI, 1, 8, 0, 1))
    put("half.png", bitmap(5600, 5600, 16, 2, 3))
    put("declared.png", declared_png(2**31 - 1, 2**31 - 1))
    put("limit.png", declared_png(8192, 8192))
    put("baseline.jpg", declared_jpeg(8192, 8192, False))
    put("progressive.jpg", declared_jpeg(8192, 8192, True))
    put("largest.jpg", declared_jpeg(65535, 65535, True))
    put("lossless.webp", declared_webp(16383, 16383))
    put("limit.webp", declared_webp(8192, 8192))
    put("good.png", png(16, 16, lambda x, y: (x * 15, y * 15, 99)))
    for name in [path.name for path in folder.iterdir()]:
        single = folder / "folders" / name.replace(".", "-")
        single.mkdir(parents=True)
        (single / name).hardlink_to(folder / name)
    packed(folder / "bomb.zip", [("a.png", b"", 63 * MEBI), ("b.png", b"", 3000 * MEBI)])
    put("entries.zip", zip_of_entries(1_500_000))
    labels = io.BytesIO()
    labels.write(b'{"labels": [["a.png",0]' + b',["",0]' * (60 * MEBI // 7) + b"]}")
    with zipfile.ZipFile(folder / "labels.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", png(8, 8, lambda x, y: (1, 2, 3)))
        archive.writestr("dataset.json", labels.getvalue())
    side = 8192
    packed(folder / "numbers.npz", [("mu.npy", npy("<f8", [side]), 8 * side), ("sigma.npy", npy("<f8", [side, side]), 8 * side**2),
                                    ("n.npy", npy("<i8", []), 8), ("sum.npy", npy("<f8", [side]), 8 * side),
                                    ("outer.npy", npy("<f8", [side, side]), 8 * side**2)])
    packed(folder / "single.npz", [("mu.npy", npy("<f4", [2 * side]), 8 * side), ("sigma.npy", npy("<f4", [side, 2 * side]), 8 * side**2)])
    packed(folder / "images.npz", [("arr_0.npy", npy("|u1", [4_000_000, 32, 32, 1]), 4_096_000_000)])
    with gzip.open(folder / "images-idx3-ubyte.gz", "wb", 6) as file:
        file.write(struct.pack(">IIII", 0x803, 2**17, 128, 127))
        for _ in range(2**17 * 128 * 127 // MEBI):
            file.write(bytes(MEBI))
    cifar(folder / "cifar", 500 * MEBI)
    put("header.safetensors", struct.pack("<Q", 2**63) + b"{}")
    text = b'{"__metadata__":{' + b",".join(b'"%d":""' % k for k in range(1_300_000)) + b"}}"
    put("metadata.safetensors", struct.pack("<Q", len(text)) + text)
    text = b'{' + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % k for k in range(270_000)) + b"}"
    put("tensors.safetensors", struct.pack("<Q", len(text)) + text)
    put("nested.safetensors", struct.pack("<Q", 4 * MEBI) + b"[" * (4 * MEBI))
    safetensors(folder / "hole.safetensors", [("w", [1500, MEBI])])
    safetensors(folder / "holes.safetensors", [(f"{k}.weight", [64, MEBI]) for k in range(40)])
    torch_bomb(folder / "bomb.pt", 500 * MEBI)
    put("opcodes.pt", b"\x80\x02" + b"(" * 60 * MEBI + b".")
    mat_bomb(folder / "bomb.mat", 1000 * MEBI)
    put("equals.toml", b"=" * 250_000)
    put("deep.toml", b"a = " + b"[" * 120_000)
    put("keys.toml", b"".join(b"k%d = 1\n" % k for k in range(20_000)))
    put("dotted.toml", b".".join([b"a"] * 100_000) + b" = 1")
    put("report.json", b'{"metric":"psnr","values":[' + b"0," * (31 * MEBI) + b"0]}")
    put("objects.json", b'[' + b'{"a":{}},' * (6 * MEBI) + b"0]")
    with open(folder / "log.jsonl", "wb") as file:
        file.truncate(1 << 30)
    put("lines.jsonl", b'{"step":1}\n' * (40 * MEBI))
