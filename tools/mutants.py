#!/usr/bin/env python3
"""Mutation testing with one build: `mutants.py SOURCES --sample N [--seed S] --tests PACKAGE:TARGET[:FILTER] …`.

Every change of the sample (operators exchanged, negations removed, functions that return a constant, the same changes that
cargo-mutants makes) is compiled into one copy of the workspace, behind `crate::mutant(NUMBER)`, which the variable MUTANT selects.
So a crate that takes minutes to build is built a few times and not once for each change. A copy of target/debug in DIR/target saves
the build of all other crates. SOURCES is a directory or file of one
crate, e.g. `crates/crossfade/src/metrics`. A test target is `lib` or the name of an integration test.

A change counts as caught if a test fails or takes more than five times the processor time of the unchanged program. Changes that do not
compile are left out and counted apart. The survivors are printed with file, line and change. Needs `pip install tree-sitter
tree-sitter-rust`.
"""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys

import tree_sitter_rust
from tree_sitter import Language, Parser

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHERS = {"+": "-*", "-": "+/", "*": "+/", "/": "%*", "%": "/+", "&": "|^", "|": "&^", "^": "|&"}
OTHERS = {key: list(value) for key, value in OTHERS.items()} | {
    "==": ["!="], "!=": ["=="], "<": ["==", ">", "<="], ">": ["==", "<", ">="], "<=": [">"], ">=": ["<"], "&&": ["||"],
    "||": ["&&"], "<<": [">>"], ">>": ["<<"], "+=": ["-=", "*="], "-=": ["+=", "/="], "*=": ["+=", "/="], "/=": ["%=", "*="]}
CONSTANTS = {"bool": ["true", "false"], "f64": ["0.0", "1.0", "-1.0"], "f32": ["0.0", "1.0", "-1.0"], "String": ["String::new()"]}
CONSTANTS |= {kind: ["0", "1"] for kind in ("u8", "u16", "u32", "u64", "usize", "i32", "i64")}
SKIPPED = {"const_item", "static_item", "attribute_item", "inner_attribute_item", "macro_invocation", "macro_definition",
           "array_type", "type_arguments", "let_chain", "enum_item", "const_block"}
HELPER = """
/// Whether this change is the one that is on.
pub(crate) fn mutant(number: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0)) == number
}
"""


def text(node):
    return node.text.decode()


def constants(kind):
    """What a function of this type returns instead of what it computes."""
    if kind is None:
        return ["()"]
    if kind in CONSTANTS:
        return CONSTANTS[kind]
    inner = re.fullmatch(r"(Option|Vec|Result)<(.*)>", kind, re.DOTALL)
    if not inner:
        return []
    outer, content = inner.groups()
    if outer == "Vec":
        return ["Vec::new()"]
    if outer == "Option":
        return ["None"] + [f"Some({value})" for value in CONSTANTS.get(content, [])]
    content = content.split(",")[0].strip()
    return [f"Ok({value})" for value in constants(None if content == "()" else content)]


def is_test(node):
    """Whether the item before this one is the attribute #[cfg(test)] or #[test]."""
    before = node.prev_sibling
    while before is not None and before.type in ("attribute_item", "line_comment"):
        if re.search(r"\btest\b", text(before)):
            return True
        before = before.prev_sibling
    return False


def candidates(node, path, found):
    """Collects (path, first byte of the node, last byte, replacement) of all changes below `node`."""
    if node.type in SKIPPED or is_test(node):
        return
    place = (path, node.start_byte, node.end_byte, node.type)
    if node.type in ("binary_expression", "compound_assignment_expr") and not has_let(node):
        found += [(*place, other) for other in OTHERS.get(text(node.child_by_field_name("operator")), [])]
    elif node.type == "unary_expression" and node.children[0].type in "-!" and not node.children[1].type.endswith("literal"):
        found.append((*place, ""))
    elif node.type == "function_item":
        if any(child.type == "function_modifiers" and "const" in text(child) for child in node.children):
            return
        kind = node.child_by_field_name("return_type")
        found += [(*place, value) for value in constants(text(kind) if kind else None)]
    for child in node.children:
        candidates(child, path, found)


def has_let(node):
    return node.type == "let_condition" or any(has_let(child) for child in node.children)


def render(node, source, chosen):
    """The text of `node` with the changes `chosen`: (first byte, last byte, type) to [(number, replacement)]."""
    parts, at = [], node.start_byte
    changes = chosen.get((node.start_byte, node.end_byte, node.type), [])
    operator = node.child_by_field_name("operator") if changes and node.type != "unary_expression" else None
    body = node.child_by_field_name("body") if changes and node.type == "function_item" else None
    sides = []
    for child in node.children:
        parts.append(source[at:child.start_byte].decode())
        rendered = render(child, source, chosen)
        if body is not None and child.start_byte == body.start_byte and child.end_byte == body.end_byte:
            returns = "".join(f" if crate::mutant({number}) {{ return {value}; }}" for number, value in changes)
            rendered = "{" + returns + rendered[1:]
        if operator is not None and child.start_byte != operator.start_byte:
            sides.append(rendered)
        parts.append(rendered)
        at = child.end_byte
    whole = "".join(parts) + source[at:node.end_byte].decode()
    if not changes or node.type == "function_item":
        return whole
    for number, other in changes:
        changed = f"{sides[0]} {other} {sides[-1]}" if operator is not None else render(node.children[1], source, chosen)
        whole = f"(if crate::mutant({number}) {{ {changed} }} else {{ {whole} }})"
    return whole


def update(path, content):
    """Writes a file if its content differs, so that cargo builds what has changed and nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def write(copy, trees, mutants, left_out):
    """Writes every file that has changes; keeps line numbers."""
    per_file = {}
    for number, (path, start, end, kind, other) in mutants.items():
        if number not in left_out:
            per_file.setdefault(path, {}).setdefault((start, end, kind), []).append((number, other))
    for path in {mutant[0] for mutant in mutants.values()}:
        source, tree = trees[path]
        update(copy / path, render(tree.root_node, source, per_file.get(path, {})).encode())


def build(copy, targets, environment):
    """The test programs by target, and the numbers of changes on lines with errors."""
    # The whole workspace, as the tests are usually built: a selection has features of its own and builds every crate again.
    command = ["cargo", "test", "--workspace", "--no-run", "--locked", "--message-format=json"]
    for target in targets:
        command += ["--lib"] if target == "lib" else ["--test", target]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    programs, wrong = {}, set()
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            name = "lib" if "lib" in message["target"]["kind"] else message["target"]["name"]
            programs[(message["target"]["src_path"].split("/crates/")[1].split("/")[0], name)] = message["executable"]
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            for span in message["message"]["spans"]:
                for piece in span["text"]:
                    near = piece["text"][max(0, piece["highlight_start"] - 200):piece["highlight_end"] + 200]
                    numbers = [int(number) for number in re.findall(r"crate::mutant\((\d+)\)", near)]
                    wrong.update(numbers)
    if done.returncode != 0 and not wrong:
        sys.exit(done.stderr[-3000:])
    return (programs if done.returncode == 0 else None), wrong


def run(programs, tests, environment, limits):
    """The first target that fails or takes more seconds of the processor than its limit, or None; and the seconds of each."""
    seconds = []
    for (package, target, *words), limit in zip(tests, limits):
        command = [programs[(package, target)], "--test-threads", "2", *words]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=environment["PLACE"] + "/crates/" + package, env=environment, capture_output=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode != 0:
            return f"{target}, too slow" if done.returncode == -9 else target, seconds
    return None, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/tmp/mutants"), help="the copy and its build")
    options = parser.parse_args()
    tests = [tuple(part.split(":", 2)) for part in options.tests]
    copy = options.dir / "main" / "copy"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        update(copy / name, (ROOT / name).read_bytes())
    language = Parser(Language(tree_sitter_rust.language()))
    trees, found = {}, []
    for path in sorted([options.sources] if options.sources.is_file() else options.sources.rglob("*.rs")):
        path = path.resolve().relative_to(ROOT)
        if "tests" in path.parts or path.name == "tests.rs":
            continue
        source = (ROOT / path).read_bytes()
        trees[path] = (source, language.parse(source))
        candidates(trees[path][1].root_node, path, found)
    random.Random(options.seed).shuffle(found)
    mutants = dict(enumerate(sorted(found[:options.sample]), start=1))
    library = copy / next(iter(trees)).parts[0] / next(iter(trees)).parts[1] / "src/lib.rs"
    update(library, (ROOT / library.relative_to(copy)).read_bytes() + HELPER.encode())
    environment = os.environ | {"CARGO_TARGET_DIR": str(options.dir / "target"), "PLACE": str(copy),
                                "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}
    environment.setdefault("CROSSFADE_SHARED", str(ROOT.parent / "shared"))
    environment.setdefault("CROSSFADE_GOLDEN", str(ROOT.parent / "shared/golden/public"))
    left_out, programs = set(), None
    while programs is None:
        write(copy, trees, mutants, left_out)
        programs, wrong = build(copy, sorted({test[1] for test in tests}), environment)
        left_out |= wrong
        print(f"built: {len(left_out)} of {len(mutants)} changes do not compile so far", flush=True)
    failed, seconds = run(programs, tests, environment, [3600] * len(tests))
    if failed:
        sys.exit(f"{failed} fails without any change")
    limits = [int(10 + 5 * each) for each in seconds]
    print(f"seconds of the processor without a change: {', '.join(f'{each:.0f}' for each in seconds)}", flush=True)
    caught, survivors = {}, []
    for number, (path, start, _, kind, other) in mutants.items():
        if number in left_out:
            continue
        end = run(programs, tests, environment | {"MUTANT": str(number)}, limits)[0]
        line = trees[path][0][:start].count(b"\n") + 1
        first = trees[path][0][start:].split(b"\n")[0].decode()[:80]
        print(f"{number}: {path}:{line}: {kind} `{first}` -> `{other}`: {end or 'SURVIVED'}", flush=True)
        if end:
            caught[end] = caught.get(end, 0) + 1
        else:
            survivors.append(number)
    total = len(mutants) - len(left_out)
    print(f"{len(found)} possible changes, {len(mutants)} drawn, {len(left_out)} do not compile, {sum(caught.values())} of {total} "
          f"caught ({100 * sum(caught.values()) / max(total, 1):.1f} %): {caught}; survivors: {survivors}")


if __name__ == "__main__":
    main()
