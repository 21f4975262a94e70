"""The official `openai` client against a running `crossfade serve`.

    pip install openai
    python tools/serve_openai.py http://127.0.0.1:7860 [TOKEN]

The server needs a model with classes; edits are tried if it has one for inpainting, tasks are not part of OpenAI's interface.
"""

import base64
import io
import struct
import sys
import urllib.request
import zlib

import openai


def png(width, height, pixel):
    """An RGBA picture without other packages."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in pixel(x, y)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def file(name, data):
    handle = io.BytesIO(data)
    handle.name = name
    return handle


def refused(kind, call, says):
    try:
        call()
    except kind as problem:
        assert says in str(problem), problem
        return problem
    raise AssertionError(f"{kind.__name__} expected")


def main():
    base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7860"
    token = sys.argv[2] if len(sys.argv) > 2 else "none"
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=token, max_retries=2)

    models = client.models.list().data
    print("models:", ", ".join(f"{m.id} ({m.task})" for m in models))
    with_classes = next(m for m in models if "generation" in m.kinds and m.classes)
    assert client.models.retrieve(with_classes.id).digest == with_classes.digest
    name = with_classes.classes[0]

    made = client.images.generate(model=with_classes.id, prompt=f"a picture of a {name}", n=2,
                                  response_format="b64_json", extra_body={"seed": 7, "steps": 3})
    assert len(made.data) == 2 and made.created > 0
    pictures = [base64.b64decode(image.b64_json) for image in made.data]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    again = client.images.generate(model=with_classes.id, prompt=name, n=2, extra_body={"seed": 7, "steps": 3})
    assert [base64.b64decode(image.b64_json) for image in again.data] == pictures, "the seed names the picture"
    linked = client.images.generate(model=with_classes.id, prompt=name, response_format="url",
                                    size=f"{with_classes.width}x{with_classes.height}", user="tools",
                                    extra_body={"seed": 7, "steps": 3})
    request = urllib.request.Request(linked.data[0].url, headers={"authorization": f"Bearer {token}"})
    assert urllib.request.urlopen(request).read() == pictures[0], "the address has the same file"
    print("generations: ok")

    side = with_classes.width
    sent = png(side, side, lambda x, y: (255 * x // side, 255 * y // side, 128, 255))
    varied = client.images.create_variation(image=file("a.png", sent), n=2, model=with_classes.id,
                                            response_format="b64_json", extra_body={"seed": 3, "strength": 0.5})
    assert len(varied.data) == 2 and varied.data[0].b64_json != varied.data[1].b64_json
    print("variations: ok")

    if any("edit" in m.kinds for m in models):
        mask = png(48, 40, lambda x, y: (0, 0, 0, 0 if 10 < x < 24 and 8 < y < 20 else 255))
        picture = png(48, 40, lambda x, y: (5 * x, 6 * y, 90, 255))
        edited = client.images.edit(image=file("a.png", picture), mask=file("m.png", mask), prompt="",
                                    extra_body={"seed": 1})
        assert base64.b64decode(edited.data[0].b64_json).startswith(b"\x89PNG")
        refused(openai.UnprocessableEntityError,
                lambda: client.images.edit(image=file("a.png", picture), mask=file("m.png", mask), prompt="a hat"), "no text")
        print("edits: ok")
    else:
        print("edits: the server has no model for inpainting")

    problem = refused(openai.UnprocessableEntityError,
                      lambda: client.images.generate(model=with_classes.id, prompt="an unheard-of thing"), name)
    assert problem.param == "prompt" and problem.code == "unknown_class"
    refused(openai.UnprocessableEntityError, lambda: client.images.generate(prompt=name, model="no-such"), "no-such")
    refused(openai.UnprocessableEntityError, lambda: client.images.generate(prompt=name, n=10_000), "from 1 to")
    refused(openai.NotFoundError, lambda: client.models.retrieve("no-such"), "no such model")
    if token != "none":
        stranger = openai.OpenAI(base_url=f"{base}/v1", api_key="wrong", max_retries=0)
        refused(openai.AuthenticationError, lambda: stranger.models.list(), "token")
    print("errors: ok")


if __name__ == "__main__":
    main()
