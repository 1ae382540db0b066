"""Writes the golden files of this folder with Python's own json, repr, pprint and jsonschema: python make.py"""
import json, os, pprint, random, jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
rnd = random.Random(7)
WORDS = ["SELECT", "a", "FROM", "t\n", "it's", '"q"', "é", "日本", "🎉", "\t", "\\", "\x85", "\x7f", "x" * 90, " ", "\u2028", "\x00", "\xa0", "\xad", "\ue000"]


def text():
    return "".join(rnd.choice(WORDS) + rnd.choice(["", " ", "  "]) for _ in range(rnd.randint(0, 25)))


def value(depth=0):
    k = rnd.randint(0, 9 if depth < 4 else 6)
    if k == 0: return None
    if k == 1: return rnd.random() < 0.5
    if k == 2: return rnd.randint(-10**rnd.randint(1, 30), 10**rnd.randint(1, 30))
    if k == 3: return rnd.choice([0.0, -0.0, 1e16, 1e15, 1e-4, 1e-5, 0.1, 1.5e300, 123456789.125, float("inf"), float("-inf"), float("nan"), rnd.random() * 10**rnd.randint(-30, 30)])
    if k <= 6: return text()
    if k == 7: return [value(depth + 1) for _ in range(rnd.randint(0, 4))]
    return {text()[:rnd.randint(1, 20)]: value(depth + 1) for _ in range(rnd.randint(0, 4))}


def write(name, rows):
    with open(os.path.join(HERE, name), "w") as f:
        for r in rows: f.write(json.dumps(r) + "\n")


rows = []
for _ in range(250):
    v = value()
    rows.append({"json": json.dumps(v), "repr": repr(v), "pprint": pprint.pformat(v, width=72, sort_dicts=False)})
write("values.jsonl", rows)

TEXTS = ['', ' ', '1', '-', '-0', '01', '1.', '1.e3', '.5', '1e', '1e+', '1E5', '-1.5e-3', '1e999', '-1e999', 'NaN', '-NaN', 'Infinity', '-Infinity', '+1', 'nan', 'true', 'True',
         '"', '"a', '"\\', '"\\u12', '"\\u12g4"', '"\\ud83c"', '"\\ud83c\\udf89"', '"\\udf89\\ud83c"', '"\\x41"', '"a\tb"', '"a\\tb"', '"\x7f"', '[', '[]', '[1', '[1,', '[1,]', '[,1]', '[1 2]',
         '{', '{}', '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{'a':1}", '{1:2}', '{"a":1 "b":2}', '{"a":1,"b":2,"a":3}', '[1] x', '\ufeff1', ' [1]\r\n', '\xa01', '[[[[]]]]', '1_000', '1٣', '"\\/"',
         '[' * 500 + ']' * 500, '[' * 5000 + ']' * 5000, '9' * 4300, '9' * 4301, '{"a": /* c */ 1}', 'nul', 'nulll', '-Infinityx', '"\\U0001F389"', '12345678901234567890', '1.0', '{"":0}']
rows = []
for t in TEXTS:
    try: rows.append({"text": t, "repr": repr(json.loads(t)).encode("utf-8", "replace").decode()})
    except (ValueError, RecursionError): rows.append({"text": t, "error": True})
write("decode.jsonl", rows)

SCHEMAS = [
    {"type": "object", "properties": {"query": {"type": "string", "description": "A single SQL SELECT statement."}}, "required": ["query"]},
    {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "x": {"type": ["number", "null"]}}, "required": ["query", "limit"]},
    {"type": "object", "properties": {"b": {"type": "boolean"}, "l": {"type": "array"}, "o": {"type": "object"}}},
]
rows = []
for s in SCHEMAS:
    for _ in range(60):
        args = {k: value() for k in list(s["properties"]) + ["more words than fit"] if rnd.random() < 0.6}
        wrong = [k for k in s["properties"] if k in args and not jsonschema.Draft202012Validator(s["properties"][k]).is_valid(args[k])]
        if len(wrong) > 1 or wrong and any(k not in args for k in s.get("required", [])): continue  # which error is raised is a heuristic there
        try: jsonschema.validate(args, s); err = ""
        except jsonschema.ValidationError as e: err = str(e)
        rows.append({"schema": json.dumps(s), "args": json.dumps(args), "error": err})
write("schema.jsonl", rows)
