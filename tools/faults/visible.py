"""What is to be seen of a directory: whether every visible file is whole, and whether two directories hold the same."""
import json
import re
import struct
import tomllib
import xml.etree.ElementTree
import zipfile
import zlib
from pathlib import Path

# Their names contain the time.
EVENTS = re.compile(r"events\.out\.tfevents\.")


def files(root):
    return sorted(path for path in Path(root).rglob("*") if path.is_file())


def is_hidden(path, root):
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def safetensors(data):
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    values = data[8 + size :]
    assert len(values) == max((entry["data_offsets"][1] for entry in header.values()), default=0), "length"
    sums = [value for key, value in metadata.items() if re.fullmatch(r"[0-9a-f]{8}", value) and "crc" in key.lower()]
    assert all(zlib.crc32(values) == int(value, 16) for value in sums), "checksum"


def png(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "signature"
    at, last, pixels = 8, None, b""
    while at < len(data):
        length, last = struct.unpack(">I", data[at : at + 4])[0], data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(last + body), "checksum"
        pixels += body if last == b"IDAT" else b""
        at += 12 + length
    assert last == b"IEND", "end"
    zlib.decompress(pixels)


def records(data):
    """TFRecords. Files of events grow by appending, so that the last record may be torn, as readers expect."""
    at = 0
    while at + 8 <= len(data):
        at += 16 + struct.unpack("<Q", data[at : at + 8])[0]


def lines(data):
    """Lines of JSON, the last of which may be torn."""
    whole, _, _ = data.rpartition(b"\n")
    for line in whole.splitlines():
        json.loads(line)


def ends_with(text):
    def check(data):
        assert data.rstrip().endswith(text), f"does not end with {text!r}"
    return check


def npz(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, "member"


def problem(path):
    """Why a file is not whole, or nothing."""
    parsers = {
        ".safetensors": safetensors, ".png": png, ".json": json.loads, ".jsonl": lines,
        ".toml": lambda data: tomllib.loads(data.decode()), ".html": ends_with(b"</html>"), ".jpg": ends_with(b"\xff\xd9"),
        ".svg": lambda data: xml.etree.ElementTree.fromstring(data), ".csv": ends_with(b""), ".md": ends_with(b""),
    }
    try:
        if path.suffix == ".npz":
            npz(path)
        elif EVENTS.match(path.name):
            records(path.read_bytes())
        else:
            data = path.read_bytes()
            assert data or path.suffix == ".jsonl" or path.name.endswith("lock"), "empty"
            if path.suffix in (".csv", ".md", ".txt", ".html", ".svg"):
                assert data.endswith(b"\n") or path.suffix in (".html", ".svg"), "no end of line"
            parsers.get(path.suffix, lambda data: None)(data)
    except Exception as error:  # whatever a parser finds
        return f"{path}: {type(error).__name__} {error}"
    return None


def broken(root):
    """The visible files that are not whole."""
    found = (problem(path) for path in files(root) if not is_hidden(path, root))
    return [text for text in found if text]


def hidden(root):
    return [str(path.relative_to(root)) for path in files(root) if is_hidden(path, root)]


def steps(data):
    return [(line["step"], line["loss"]) for line in map(json.loads, data.decode().splitlines())]


def picture(root):
    """The visible files by their names. Of a log only steps and losses, because speeds vary."""
    found = {}
    for path in files(root):
        if not EVENTS.match(path.name):
            data = path.read_bytes()
            # A report states how long a row took to sample.
            data = re.sub(rb"<td>[0-9.]+ (s|min|h)</td>", b"", data) if path.suffix == ".html" else data
            found[str(path.relative_to(root))] = steps(data) if path.name == "log.jsonl" else data
    return found


class Reference:
    """What undisturbed runs write. Files that differ between two of them, for example by times, need only be there."""

    def __init__(self, first, second):
        self.files = first
        self.varying = {name for name in first if first[name] != second.get(name)}
        if set(first) != set(second):
            self.varying |= set(first) ^ set(second)

    def differences(self, root):
        now = picture(root)
        found = [f"missing: {name}" for name in self.files if name not in now and name not in self.varying]
        found += [f"left over: {name}" for name in now if name not in self.files and name not in self.varying]
        same = (name for name in self.files if name in now and name not in self.varying)
        return found + [f"differs: {name}" for name in same if self.files[name] != now[name]]
