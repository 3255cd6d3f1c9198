// The ids that Hugging Face's library gives texts: node ids.js PACKAGE TOKENIZER.json
// Standard input is a JSON array of texts, standard output one of arrays of ids.
const { Tokenizer } = require(process.argv[2]);
const tokenizer = Tokenizer.fromFile(process.argv[3]);
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
Promise.all(texts.map((text) => tokenizer.encode(text, null, { addSpecialTokens: true })))
  .then((all) => console.log(JSON.stringify(all.map((encoding) => encoding.getIds()))))
  .catch((error) => {
    console.error(String(error));
    process.exit(1);
  });
