// A text that grows by tokens, and which of them a place in it is of.

// Tokens are parts of a text, {from, to, scores}: scores are entries of the API's logprobs, most
// often one. Parts follow each other; where the server sent no scores there are none.
export class Tokens {
  text = '';
  parts = [];
  #waiting = []; // scores of tokens that made no text yet, such as half a character

  // add appends what a chunk says, and the scores of the tokens that said it.
  add(text, scores) {
    const from = this.text.length;
    this.text += text;
    const all = [...this.#waiting, ...scores];
    if (!text) {
      this.#waiting = all;
      return;
    }
    this.#waiting = [];
    if (all.length === 0) return;
    const pieces = piecesOf(all);
    if (pieces.join('') !== text) { // marks that the server took out, or characters in halves
      this.parts.push({ from, to: this.text.length, scores: all });
      return;
    }
    let at = from;
    all.forEach((score, i) => {
      if (pieces[i]) this.parts.push({ from: at, to: at + pieces[i].length, scores: [score] });
      else this.parts.at(-1)?.scores.push(score);
      at += pieces[i].length;
    });
  }

  // first is the index of the first part that ends behind a place.
  first(place) {
    let low = 0;
    let high = this.parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.parts[middle].to > place) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

function piecesOf(scores) {
  const decoder = new TextDecoder();
  return scores.map((score) => decoder.decode(new Uint8Array(score.bytes ?? []), { stream: true }));
}

const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  return `${p >= 10 ? p.toFixed(0) : p >= 0.1 ? p.toFixed(1) : '<0.1'} %`;
};

// visible shows blanks, line ends, and of a part of a character its bytes.
function visible({ token, bytes }) {
  if (token.includes('\ufffd')) return (bytes ?? []).map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return token.replace(/ /g, '·').replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/[\u202a-\u202e\u2066-\u2069]/g, '') || '(nothing)';
}

// likelihood is the share of a part's choices, all of them.
export const likelihood = (part) => Math.exp(part.scores.reduce((sum, score) => sum + score.logprob, 0));

// alternatives are what a token might have been, the most likely first, as {token, share, width,
// chosen}.
export function alternatives(score) {
  const top = score.top_logprobs ?? [];
  const same = (a) => a.token === score.token && String(a.bytes) === String(score.bytes);
  const all = top.some(same) ? top : [...top, score];
  return all.map((a) => ({ token: visible(a), share: percent(a.logprob), width: Math.exp(a.logprob), chosen: same(a) }));
}

// spoken is a part in words, for those who do not see it.
export function spoken(part) {
  return part.scores.map((score) => {
    const [chosen, others] = [alternatives(score).find((a) => a.chosen), alternatives(score).filter((a) => !a.chosen)];
    return `${chosen.token} ${chosen.share}` + (others.length ? `; else ${others.map((a) => `${a.token} ${a.share}`).join(', ')}` : '');
  }).join('. ');
}
