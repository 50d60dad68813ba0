export { Client, type CallOptions, type ClientOptions } from "./client.js";
export {
  ConnectionFailedError,
  DeadlineExceededError,
  ListwrightError,
  OverloadedError,
  RequestError,
  ServerError,
  UnavailableError,
  UnexpectedAnswerError,
} from "./errors.js";
export type * from "./types.js";
