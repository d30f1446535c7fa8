// A word finds pages before names of the code, and a name of the code, as in score_curve, itself.
const named = /[_.]/.test(new URLSearchParams(location.search).get("q"));

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: named ? 6 : 1,
  objPrio: {},
  objPrioDefault: named ? 15 : 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
