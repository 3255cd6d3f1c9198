// Renders templates with @huggingface/jinja. Arguments: the folder of the templates, the file of
// the conversations, the moment that it is (in ms), and the templates. Prints a JSON object:
// {template: {conversation: {text} or {error}}}.
import {Template} from '@huggingface/jinja';
import fs from 'node:fs';
import path from 'node:path';

const [root, conversations, now, ...templates] = process.argv.slice(2);
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...args) { super(...(args.length ? args : [Number(now)])); }
  static now() { return Number(now); }
};

const result = f => {
  try { return {text: f()}; } catch (e) { return {error: e.message}; }
};
const cases = JSON.parse(fs.readFileSync(conversations, 'utf8'));
const out = {};
for (const name of templates) {
  const source = fs.readFileSync(path.join(root, name), 'utf8');
  out[name] = {};
  for (const c of cases) out[name][c.name] = result(() => new Template(source).render(c.variables));
}
process.stdout.write(JSON.stringify(out));
