// Measures the masks of @mlc-ai/web-xgrammar. Arguments: a JSON file,
// {tokens, stops, schemas: [{schema, texts: [[token]]}]}, and one to write:
// [{error} or {compile (µs), texts: [{accepted, masks: [µs]}]}].
import fs from 'node:fs';
import {createRequire} from 'node:module';

// The package calls itself a module and is none.
const script = new URL('web-xgrammar.cjs', import.meta.url);
fs.copyFileSync(new URL('node_modules/@mlc-ai/web-xgrammar/lib/index.js', import.meta.url), script);
const {GrammarCompiler, GrammarMatcher, TokenizerInfo} = createRequire(import.meta.url)(script.pathname);

const {tokens, stops, schemas} = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const info = await TokenizerInfo.createTokenizerInfo(tokens, 'byte_level', false, tokens.length, stops);
const since = start => (performance.now() - start) * 1000;
const out = [];
for (const {schema, texts} of schemas) {
  // Nothing of one schema serves another, as for who measures smelt.
  const compiler = await GrammarCompiler.createGrammarCompiler(info, false);
  try {
    const start = performance.now();
    const grammar = await compiler.compileJSONSchema(schema, true, undefined, undefined, false);
    const answer = {compile: since(start), texts: []};
    for (const ids of texts) {
      const matcher = await GrammarMatcher.createGrammarMatcher(grammar);
      const masks = [];
      let accepted = true;
      for (const id of ids) {
        const start = performance.now();
        await matcher.getNextTokenBitmask();
        masks.push(since(start));
        if (!(accepted = matcher.acceptToken(id))) break;
      }
      answer.texts.push({accepted: accepted && matcher.acceptToken(stops[0]), masks});
      matcher.dispose();
    }
    out.push(answer);
    grammar.dispose();
  } catch (e) {
    out.push({error: String(e && e.message || e)});
  }
  compiler.dispose();
}
fs.writeFileSync(process.argv[3], JSON.stringify(out));
