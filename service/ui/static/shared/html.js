/** Preact and htm as the page uses them: elements as tagged templates, without a build step. */

import { Fragment, h, render } from "../vendor/preact.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);

export { Fragment, render, useCallback, useEffect, useMemo, useRef, useState };
