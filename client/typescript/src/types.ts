// Written by tools/typescript_types.py from openapi.yaml.

/** How unlike the training queries the query is. */
export interface AnomalyReasons {
  score: number;
  /** of the training queries' scores, by level */
  training_quantiles: { [name: string]: number };
  features: UnusualValue[];
}

/** Multiply (boost) or divide (bury) the odds of candidates to be chosen. */
export interface BoostRule {
  /** for answers and logs; default: its number */
  name?: string | null;
  /** of candidates; either ids or where */
  ids?: string[] | null;
  /** instead of ids: conditions by feature; all must hold */
  where?: { [name: string]: Condition } | null;
  action: "boost" | "bury";
  /** of the odds against each other candidate */
  factor: number;
}

/** One candidate: its features by name, or as an array in the order of the schema. */
export interface Candidate {
  /** opaque, echoed, unique in the list */
  id?: string | null;
  /** values by name, in any order; an array in the order of the schema is accepted, too */
  features: { [name: string]: Value };
}

/** Why one candidate stands where it stands. */
export interface CandidateExplanation {
  candidate: PlacedCandidate;
  /** null where no first stage scored the list */
  first_stage: StageContributions | null;
  /** null where none scored the candidate, or where it is incomplete */
  second_stage: StageContributions | null;
  /** null for the first place, or where it is incomplete; in a degraded answer, by the first stage */
  passing: WhatItTakes | null;
  /** in a degraded answer, by the first stage */
  moves: MovedCandidate[];
  /** null where the bundle has no anomaly score */
  anomaly: AnomalyReasons | null;
  /** null where the bundle's router was not asked */
  router: RouterReasons | null;
  /** null where it was not asked for */
  against: Comparison | null;
  /** parts that the deadline cut short or left out, or that failed */
  incomplete: string[];
  /** by part, why it failed, or left changed lists out */
  faults: { [name: string]: string };
  /** left out where no rule touched the list; all other ranks are those before rules */
  rules?: RuleReasons | null;
  /** of all goals together, which give the order; left out where the first goal alone does, and where it is incomplete. first_stage and second_stage are of the first goal */
  goals?: GoalContributions | null;
}

/** Allow no more than so many candidates with one value of a feature among the first places. */
export interface CapRule {
  /** for answers and logs; default: its number */
  name?: string | null;
  action: "cap";
  /** the feature; missing values and unknown categories are not counted */
  by: string;
  /** candidates of one value */
  most: number;
  /** places, from the top */
  first?: number;
}

/** Differences of the candidate's contributions to another one's, the largest in size first. */
export interface Comparison {
  /** position in the request, from 0 */
  index: number;
  id: string | null;
  /** empty where there was no time to sample the other's */
  first_stage: FeatureContribution[];
  /** empty where the second stage did not score both */
  second_stage: FeatureContribution[];
  /** to the share by all goals; left out where different stages scored both for the first goal */
  goals?: FeatureContribution[];
}

/** What a feature must be: one of ``values``, or from ``min`` to ``max``; values may stand without the object. */
export interface Condition {
  /** numbers or categories; one of them is enough */
  values?: (number | string | boolean)[] | null;
  /** the lowest number */
  min?: number | null;
  /** the highest number */
  max?: number | null;
}

/** Leave out of the results what is probably not relevant. */
export interface CutoffRule {
  /** for answers and logs; default: its number */
  name?: string | null;
  action: "cutoff";
  /** the lowest probability of a result */
  min_probability: number;
}

/** Choose candidates for the first places that are unlike those above them (maximal marginal relevance). */
export interface DiversifyRule {
  /** for answers and logs; default: its number */
  name?: string | null;
  action: "diversify";
  /** features to compare */
  by: string[];
  /** of diversity; 0 keeps the order, 1 ignores relevance */
  weight?: number;
  /** places, from the top */
  first?: number;
}

/** Leave candidates out of the results. */
export interface ExcludeRule {
  /** for answers and logs; default: its number */
  name?: string | null;
  /** of candidates; either ids or where */
  ids?: string[] | null;
  /** instead of ids: conditions by feature; all must hold */
  where?: { [name: string]: Condition } | null;
  action: "exclude";
}

/** One experiment of the file. */
export interface ExperimentInfo {
  name: string;
  kind: "shadow" | "split" | "interleave" | "explore";
  control: string;
  challenger: string | null;
  /** of control's traffic that takes part */
  share: number;
  running: boolean;
  /** why it does not run; null if it does */
  reason: string | null;
}

/** What an experiment on traffic did with the answer. */
export interface ExperimentPart {
  name: string;
  kind: "split" | "interleave" | "explore";
  /** of the unit, in a split */
  arm: "control" | "challenger" | null;
  /** why there are no scores, or why control answered alone or in place of the challenger */
  reason: string | null;
}

/** The experiments of this worker process. */
export interface ExperimentsInfo {
  experiments: ExperimentInfo[];
  /** why the file, as it is now, is not used; null if it is */
  refused: string | null;
  /** why no experiment may run; null if they may */
  killed: string | null;
}

/** A request to rank, and which of its candidates to explain: one, or those at the first places. This form has ``columns``. */
export interface ExplainColumns extends ExplainRequestBase, RerankColumns {}

/** A request to rank, and which of its candidates to explain: one, or those at the first places. This form has ``features``. */
export interface ExplainMatrix extends ExplainRequestBase, RerankMatrix {}

/** How the answer came about. */
export interface ExplainMeta {
  /** milliseconds by part, the sum over the candidates; total: from first byte */
  timings_ms: { [name: string]: number };
  /** parts of any candidate that the deadline cut short or left out, or that failed; explanations: candidates are missing */
  incomplete: string[];
}

/** A request to rank, and which of its candidates to explain: one, or those at the first places. */
export type ExplainRequest = ExplainRows | ExplainMatrix | ExplainColumns;

interface ExplainRequestBase extends RerankRequestBase {
  /** the one to explain: its index, from 0, or its id. Send it or explain_top_n */
  candidate?: number | string | null;
  /** another one, by index or id: differences of contributions to its own. It goes with candidate */
  against?: number | string | null;
  /** explain the candidates at so many first places, instead of one that is named */
  explain_top_n?: number | null;
  /** most changed candidates that a stage scores for one explanation, and for the other one of against; 422 above the service's limit (LISTWRIGHT_EXPLAIN_MAX_BUDGET) */
  explain_budget?: number | null;
}

/** The ranking, and why its candidates stand where they stand. */
export interface ExplainResponse {
  id: string | null;
  model: string;
  version: string;
  /** what /rerank answers */
  ranking: RerankResponse;
  explanations: CandidateExplanation[];
  meta: ExplainMeta;
}

/** A request to rank, and which of its candidates to explain: one, or those at the first places. This form has ``candidates``. */
export interface ExplainRows extends ExplainRequestBase, RerankRows {}

/** One thing that is wrong, and where. */
export interface Fault {
  /** JSON path below the body; ?NAME for a parameter of the query string; NAME of a header */
  path: string;
  message: string;
}

/** What one feature adds to a score. */
export interface FeatureContribution {
  /** name of the feature, or of the list-relative column */
  feature: string;
  /** of the feature; null: missing, or an unknown category */
  value: number | string | null;
  /** what stands in for the value where it is left out; null as well where nothing stands in: then the contribution is a difference to the list's mean. Below against: the other candidate's value */
  reference: number | string | null;
  /** in units of the score */
  contribution: number;
  /** from sampling; null: exact */
  standard_error: number | null;
}

/** One column of the served schema. */
export interface FeatureInfo {
  name: string;
  kind: "numeric" | "categorical";
  /** a request by name must send it; null is allowed */
  required: boolean;
  /** number of known values; others count as unknown */
  categories: number;
  /** its value where a request by name leaves it out; null: missing */
  default: number | string | null;
}

/** A column of a linear specialist, and what a standard deviation (of a 0/1 column: a 1) of it adds to the score. */
export interface FeatureWeight {
  feature: string;
  weight: number;
}

/** Why a candidate has its share of the list by all goals together, which is the score here. The reference is its share with the reference score of each goal's ranker, all other candidates as they are. */
export interface GoalContributions extends StageContributions {
  /** the first goal first; they sum to score - reference_score, too */
  goals: GoalShare[];
}

/** What the scores for one goal add to the share of the list by all goals together. */
export interface GoalShare {
  goal: string;
  weight: number;
  /** in units of the share, the weight included */
  contribution: number;
}

/** What is served. */
export interface Info {
  models: ServedModel[];
  /** what the last reload refused, and why */
  refused: Refused[];
  model: string;
  version: string;
  created_at: string;
  fingerprint: string;
  features: FeatureInfo[];
  /** list-relative columns, which the service computes; requests do not hold them */
  relative: string[];
  limits: Limits;
  /** what computes the first stage: lightgbm where the bundle asks for it, or where compiled was not to be had, and the log says why; column where it is a column of the data; onnx for an ONNX graph */
  engine: "compiled" | "lightgbm" | "column" | "onnx";
  strategies: string[];
  default_strategy: string;
  /** candidates that the second stage scores where no specialist does; null: there is no such stage */
  cutoff: number | null;
  /** candidates that the second stage of a strategy scores; null: the whole list */
  cutoffs: { [name: string]: number | null };
  /** by strategy, what its scores are divided by before the softmax, fitted on choices: relevance_score is then the probability of being chosen. A strategy that is not named has no such claim */
  temperatures: { [name: string]: number };
  /** of a candidate, see probabilities of /rerank; null: there is none */
  probability: ProbabilityInfo | null;
  /** weight of each goal where a request has none, the first goal first; null: there is one */
  goals: { [name: string]: number } | null;
  specialists: SpecialistInfo[];
  /** what becomes of features sent by name that the bundle lacks */
  unknown_features: "refuse" | "ignore";
  routing: RoutingInfo;
  /** what scores are: shares that sum to 1; -1, -2, ... for candidates that no ranker scored */
  score_space: "softmax over the scored candidates of one list, below 0 places of the others";
  /** a list must not be split over requests */
  supports_chunking: false;
  /** whether POST /explain is there (LISTWRIGHT_EXPLAIN) */
  explain: boolean;
  protocol: string;
  metrics: MetricInfo[];
  /** on traffic; null where LISTWRIGHT_EXPERIMENTS names no file */
  experiments?: ExperimentsInfo | null;
}

/** What a request may weigh. */
export interface Limits {
  max_candidates: number;
  max_payload_bytes: number;
  /** the most that a request can ask for, and what it gets otherwise */
  timeout_ms: number;
}

/** How the answer came about. */
export interface Meta {
  status: "ok" | "degraded";
  stage_reached: "second_stage" | "first_stage" | "input_order";
  /** why an earlier stage answered */
  reason: string | null;
  /** features that were sent by name and that the bundle does not know, the first of them; empty unless the service is set to ignore them (LISTWRIGHT_UNKNOWN_FEATURES) */
  ignored?: string[];
  timings_ms: Timings;
  /** weight of each goal in the order; left out where there is one, or the others gave no score */
  weights?: { [name: string]: number } | null;
  /** left out where the request is in no experiment that changes answers */
  experiment?: ExperimentPart | null;
  /** rules that touched a candidate, or were not applied; left out without any */
  rules?: RuleEffect[];
}

/** A held-out mean, measured through this bundle. */
export interface MetricInfo {
  ranker: string;
  name: string;
  mean: number;
  low: number;
  high: number;
  n: number;
}

/** Another candidate, whose place among the others is not the same without the explained one. */
export interface MovedCandidate extends PlacedCandidate {
  /** from 1, in the list without the explained candidate */
  rank_without: number;
}

/** Put one candidate at a place. */
export interface PinRule {
  /** for answers and logs; default: its number */
  name?: string | null;
  action: "pin";
  /** of the candidate; without effect where the list does not have it */
  id: string;
  /** from 1 */
  place: number;
}

/** A candidate and its place. */
export interface PlacedCandidate {
  /** position in the request, from 0 */
  index: number;
  id: string | null;
  /** from 1 */
  rank: number;
}

/** What a probability is of. */
export interface ProbabilityInfo {
  /** choice: of being the one that is chosen, they sum to 1; relevance: of being relevant */
  of: "choice" | "relevance";
  /** held-out lists of the calibration; null for choices */
  lists: number | null;
  /** share of relevant candidates in these lists; null for choices */
  mean: number | null;
}

/** An error (RFC 9457). */
export interface Problem {
  /** stable name of the kind of problem */
  type: string;
  title: string;
  status: number;
  detail: string;
  request_id: string;
  errors?: Fault[];
  /** names that the bundle was fitted on */
  expected?: string[];
  /** names that arrived, at most as many as expected and ten more */
  sent?: string[];
  /** of the served schema */
  fingerprint?: string | null;
  /** detail once more, where inference clients look; below /v2 */
  error?: string;
}

/** What should be served and is not. */
export interface Refused {
  /** its name in the models folder; * for the folder itself */
  model: string;
  /** null where the pointer to it is at fault */
  version: string | null;
  reason: string;
  at: string;
}

/** One query's candidates, as rows (``candidates``), as a matrix (``features``) or as ``columns``. This form has ``columns``. */
export interface RerankColumns extends RerankRequestBase {
  /** by feature name an array with one value per candidate; arrays of one length */
  columns: { [name: string]: Value[] };
  /** one id per candidate of features or columns, each once */
  ids?: string[] | null;
}

/** One query's candidates, as rows (``candidates``), as a matrix (``features``) or as ``columns``. This form has ``features``. */
export interface RerankMatrix extends RerankRequestBase {
  /** columns of features, each once; default: the schema's */
  feature_names?: string[] | null;
  /** one row per candidate: the fast JSON form */
  features: Value[][];
  /** one id per candidate of features or columns, each once */
  ids?: string[] | null;
}

/** One query's candidates, as rows (``candidates``), as a matrix (``features``) or as ``columns``. */
export type RerankRequest = RerankRows | RerankMatrix | RerankColumns;

interface RerankRequestBase {
  /** length of results; scores and ranks stay complete */
  top_n?: number | null;
  /** what holds for the whole query; an entry named like a feature is its value for every candidate that does not send it by name; a hook sees all entries */
  context?: { [name: string]: Value } | null;
  /** auto: the specialist that hook or router pick, else default_strategy of /info; srm: the same, else the mixture of all specialists; the others name one ranker, see strategies of /info */
  strategy?: "auto" | "qilcm" | "qilcm2" | "dlcm" | "dcm" | "mlp" | "srm" | "first_stage";
  /** number of the specialist to use, from 0, see /info; with strategy auto or srm */
  specialist?: number | null;
  /** milliseconds, counted from the first byte of the request, its arrival and the queue included; a stage that would miss them is not started, and the answer is degraded. Default and most: see /info */
  timeout_ms?: number | null;
  /** the ranker's own scores, without softmax and temperature */
  raw_scores?: boolean;
  /** every candidate has a score, and sorting by it gives ranks, see relevance_score; false: null (in binary forms NaN) where no single ranker scored a candidate */
  finite_scores?: boolean;
  /** answer with probabilities, see /info; 422 where the bundle has none */
  probabilities?: boolean;
  /** leave candidates of a lower probability out of results, as a rule does; pinned ones stay */
  min_probability?: number | null;
  /** by goal; others have the weight that goals of /info gives. 422 where that is null */
  weights?: { [name: string]: number } | null;
  /** number of candidates that were sent; 422 if another number arrives, because the list was split or merged on its way */
  expect_candidates?: number | null;
  /** what events name the query by, for the served log; default: id, else X-Request-ID */
  query_id?: string | null;
  /** opaque key of the person or session that asks, for the served log */
  unit?: string | null;
  /** echoed */
  id?: string | null;
  /** name or alias of the bundle that is to answer; 404 if it is not served */
  model?: string | null;
  /** its version; 404 if it is not served; default: the current one */
  version?: string | null;
  /** of merchandising, beside those of the service's file */
  rules?: (PinRule | ExcludeRule | CutoffRule | BoostRule | CapRule | DiversifyRule)[] | null;
}

/** The order, best first in ``results`` and by input position in ``scores`` and ``ranks``. */
export interface RerankResponse {
  id: string | null;
  model: string;
  version: string;
  results: Result[];
  /** relevance_score of each candidate, in input order */
  scores: (number | null)[];
  /** in input order, from 1; null for a candidate that a rule excludes */
  ranks: (number | null)[];
  /** probability of each candidate, in input order; left out unless probabilities is true */
  probabilities?: (number | null)[] | null;
  route: RouteInfo;
  meta: Meta;
}

/** One query's candidates, as rows (``candidates``), as a matrix (``features``) or as ``columns``. This form has ``candidates``. */
export interface RerankRows extends RerankRequestBase {
  /** candidates, in input order; all have an id, or none has */
  candidates: Candidate[];
}

/** One candidate's place. */
export interface Result extends PlacedCandidate {
  /** share of the list, from a softmax over the candidates that were scored; sums to 1. It is the probability of being chosen where temperatures of GET /info names the strategy of the answer. Below 0 it is no share but a place: -1 for the first candidate below the cutoff, -2 for the next; for all in an interleaved list, see meta.experiment, and where no stage ran */
  relevance_score: number | null;
  /** of being relevant to the first goal, or chosen, comparable between lists. Left out unless probabilities is true; null where nothing scored the list in time */
  probability?: number | null;
  stage: "second" | "first" | "input";
  first_stage_score: number | null;
  first_stage_rank: number | null;
  /** names of the rules that touched the candidate; left out where none did */
  rules?: string[];
}

/** Which ranker was asked for, and who chose it. */
export interface RouteInfo {
  /** the second stage's kind (qilcm, qilcm2, dlcm, dcm, mlp), srm or first_stage */
  strategy: string;
  /** its number; null for other rankers, and the mixture of all */
  specialist: number | null;
  /** probability that this specialist is the best, by who chose; null if nobody said */
  confidence: number | null;
  /** caller: the request named it; hook: the operator's; router: the bundle's; abstained: the router left it to the strategy's default; bundle: nobody was asked, or nobody could decide */
  decided_by: "caller" | "hook" | "router" | "abstained" | "bundle";
}

/** What the bundle's router made of the list. */
export interface RouterReasons {
  /** of each specialist, that it is the best one; they sum to 1 */
  probabilities: number[];
  /** of each specialist, estimated NDCG over the generalist's */
  gains: number[];
  /** the most probable specialist is taken if its gain is above this; null: none ever is */
  margin: number | null;
}

/** How a specialist is chosen for a request that names none. */
export interface RoutingInfo {
  /** whether hook and router are in use */
  enabled: boolean;
  /** why they are not in use; null if enabled */
  reason: string | null;
  /** whether the operator has a hook, which is asked first */
  hook: boolean;
  /** whether the bundle has a router */
  router: boolean;
}

/** A rule of merchandising on the list. */
export interface RuleEffect {
  name: string;
  action: "pin" | "exclude" | "cutoff" | "boost" | "bury" | "cap" | "diversify";
  /** how many it touched */
  candidates: number;
  /** why a rule of the service's file was not applied to this list; null if it was */
  reason: string | null;
}

/** What rules of merchandising made of the candidate's place. */
export interface RuleReasons {
  /** in the answer, from 1; null: it is excluded */
  rank: number | null;
  /** of the rules that touched the candidate */
  names: string[];
}

/** One served name. */
export interface ServedModel {
  model: string;
  version: string;
  /** the version before, which a request may still name; null: none */
  kept: string | null;
  /** other names that a request may use */
  aliases: string[];
  /** whether it answers a request that names none */
  default: boolean;
}

/** One specialist. */
export interface SpecialistInfo {
  /** what a request names it by */
  number: number;
  /** share of queries that the mixture gives it */
  weight: number;
  /** training queries that are most its own */
  queries: number;
  /** the largest weights by size; empty if not linear */
  top_features: FeatureWeight[];
}

/** Why a stage gave the candidate its score. */
export interface StageContributions {
  /** lightgbm, column or onnx for a first stage; else the strategy */
  ranker: string;
  score: number;
  /** the list's mean score, or that of the candidate with every feature at its reference */
  reference_score: number;
  /** whether nothing was sampled */
  exact: boolean;
  /** changed candidates that the ranker scored */
  evaluations: number;
  /** whether sampling ended before the standard errors were small enough */
  budget_spent: boolean;
  /** of every feature, the largest in size first; they sum to score - reference_score */
  contributions: FeatureContribution[];
}

/** Milliseconds by step; null for a step that did not run. */
export interface Timings {
  parse: number;
  /** from the body's last byte until its turn */
  queue: number;
  first_stage: number | null;
  routing: number | null;
  second_stage: number | null;
  /** from the first byte of the request */
  total: number;
  /** left out where it did not run */
  probability?: number | null;
  /** scores for goals besides the first; left out likewise */
  goals?: number | null;
}

/** A feature that makes the query unlike the training queries. */
export interface UnusualValue {
  feature: string;
  /** mean over the first stage's top; null: missing in all of it */
  value: number | null;
  /** the anomaly score if that mean were the training median */
  anomaly_without: number;
}

/** number, category, or null for a missing value; true and false are the categories of these names */
export type Value = number | string | boolean | null;

/** Another value of one feature. */
export interface ValueChange {
  feature: string;
  from: number | string | null;
  /** of the feature; null: missing, or an unknown category */
  to: number | string | null;
}

/** The smallest changes found that let the candidate pass the one above it, each ranked for real. */
export interface WhatItTakes {
  /** the candidate one place higher */
  above: PlacedCandidate;
  /** the change of one feature; null: no value within the training range passes */
  one: ValueChange[] | null;
  /** changes of two features that pass together only, and are smaller; null: none were found */
  two: ValueChange[] | null;
  /** changed lists that were ranked */
  tried: number;
  /** changes of one feature that were left out, beyond the limits on their number */
  untried: number;
}
