# Renders templates with Jinja2 as transformers sets it up (utils/chat_template_utils.py).
# Arguments and output as of render.mjs; the texts in the file of expressions are written anew.
import datetime
import json
import os
import sys

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


root, conversations, expressions, now, *templates = sys.argv[1:]
moment = datetime.datetime.fromtimestamp(int(now) / 1000, datetime.timezone.utc)
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = moment.strftime

with open(expressions, encoding="utf-8") as f:
    short = json.load(f)
for case in short["cases"]:
    case.pop("text", None)
    try:
        case["text"] = env.from_string(case["source"]).render(**short["variables"])
    except Exception:
        pass
with open(expressions, "w", encoding="utf-8") as f:
    json.dump(short, f, indent=0)
with open(conversations, encoding="utf-8") as f:
    cases = json.load(f)
out = {}
for name in templates:
    with open(os.path.join(root, name), encoding="utf-8", newline="") as f:
        source = f.read()
    out[name] = {}
    for case in cases:
        try:
            out[name][case["name"]] = {"text": env.from_string(source).render(**case["variables"])}
        except Exception as e:
            out[name][case["name"]] = {"error": str(e)}
json.dump(out, sys.stdout)
