/** Reload and rollback: the operator's key is asked for twice, and forgotten at once. */

import { html, useEffect, useRef, useState } from "../shared/html.js";
import { shortened } from "../shared/format.js";
import { change, isKey } from "../shared/service.js";
import { Note, Trouble } from "../shared/trouble.js";

/** Of the two steps. */
const QUESTIONS = ["This changes what every caller gets.", "Are you sure? Once more, and it is done."];

/** @typedef {{what: "reload" | "rollback", model: string | null, says: string}} Wanted */

/**
 * @param {object} props
 * @param {any} props.info of `GET /info`
 * @param {() => void} props.onChanged
 * @param {() => void} props.onRefresh
 */
export function Change({ info, onChanged, onRefresh }) {
  const [wanted, setWanted] = useState(/** @type {Wanted | null} */ (null));
  const [done, setDone] = useState("");
  const [unseen, setUnseen] = useState(/** @type {any} */ (null));
  const back = info.models.filter(({ kept }) => kept);

  /** @param {Wanted["what"]} what @param {string | null} model @param {string} says */
  const want = (what, model, says) => {
    setDone("");
    setUnseen(null);
    setWanted({ what, model, says });
  };

  /** @param {Wanted} one whose dialog closes; another may be open by now */
  const close = (one) => setWanted((now) => (now === one ? null : now));

  return html`<p class="buttons">
      <button type="button" onClick=${onRefresh}>Look again</button>
      <button
        type="button"
        onClick=${() => want("reload", null, "Read the models folder now, and serve what it names.")}
      >Reload</button>
      ${back.map(
        ({ model, version, kept }) => html`<button
          type="button"
          onClick=${() => want("rollback", model, `Serve ${model}/${kept} again, in place of ${model}/${version}.`)}
        >
          Roll back <bdi>${model}</bdi> to <bdi>${kept}</bdi>
        </button>`,
      )}
    </p>
    ${back.length === 0 && html`<p class="soft">No version is kept: there is nothing to roll back to.</p>`}
    ${done && html`<${Note} kind="good"><p>${done}</p><//>`}
    ${unseen && html`<${Refusal} error=${unseen} />`}
    ${
      wanted &&
      html`<${Dialog}
      wanted=${wanted}
      onClose=${() => close(wanted)}
      onDone=${(serving) => {
        setDone(`This worker serves ${servedIn(serving)}. Others follow within LISTWRIGHT_POLL_S.`);
        onChanged();
      }}
      onRefused=${(failure, seen) => {
        if (!seen) setUnseen(failure);
        if (failure.status === 409) onChanged();
      }}
    />`
    }`;
}

/** @param {any} serving an answer of `/admin/` */
const servedIn = ({ models }) => models.map(({ model, version }) => `${model}/${version}`).join(", ");

/**
 * @param {object} props
 * @param {Wanted} props.wanted
 * @param {() => void} props.onClose
 * @param {(serving: any) => void} props.onDone
 * @param {(failure: any, seen: boolean) => void} props.onRefused `seen`: whether the dialog was open still, and says so
 */
function Dialog({ wanted, onClose, onDone, onRefused }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const first = useRef("");
  const [step, setStep] = useState(1);
  const [fault, setFault] = useState("");
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  useEffect(() => {
    if (step === 2) field.current?.focus();
  }, [step]);

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    if (busy) return undefined;
    const form = /** @type {HTMLFormElement} */ (event.target);
    const key = String(new FormData(form).get("admin-key")).trim();
    form.reset();
    setError(null);
    if (!isKey(key)) return setFault("A key has letters, digits and signs, and no blanks.");
    if (step === 1) {
      first.current = key;
      setFault("");
      return setStep(2);
    }
    const same = key === first.current;
    first.current = "";
    setStep(1);
    if (!same) return setFault("The two keys differ. Nothing was changed.");
    setFault("");
    setBusy(true);
    const shown = dialog.current;
    try {
      const serving = await change(wanted.what, key, { model: wanted.model });
      shown?.close(); // while it is there: focus goes back to the button that opened it
      onDone(serving);
    } catch (failure) {
      setError(failure);
      setBusy(false);
      onRefused(failure, shown?.open ?? false);
    }
    return undefined;
  }

  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="change-title">
    <form onSubmit=${submit}>
      <h2 id="change-title">${wanted.what === "reload" ? "Reload" : "Roll back"}</h2>
      <p><bdi>${shortened(wanted.says, 300)}</bdi></p>
      <p class="strong" role="status">
        ${busy ? "The service is asked …" : QUESTIONS[step - 1]}
      </p>
      <p class="field">
        <label for="admin-key">${step === 1 ? "Admin key" : "Admin key, again"}</label>
        <input
          id="admin-key"
          name="admin-key"
          type="password"
          ref=${field}
          autocomplete="off"
          required
          autofocus
          readonly=${busy}
        />
      </p>
      ${fault && html`<p class="strong" role="alert">${fault}</p>`}
      ${error && html`<${Refusal} error=${error} />`}
      <p class="soft">The key is used for this one request, and kept nowhere.</p>
      <p class="buttons">
        <button type="submit" class="main" aria-disabled=${busy}>
          ${step === 1 ? "Go on" : wanted.what === "reload" ? "Reload now" : "Roll back now"}
        </button>
        <button type="button" onClick=${() => dialog.current?.close()}>Cancel</button>
      </p>
    </form>
  </dialog>`;
}

/** @param {{error: any}} props */
function Refusal({ error }) {
  if (error.status === 404 && error.type.endsWith(":not-found")) {
    return html`<div class="note warn" role="alert">
      <p>The service takes no admin key: start it with <code>LISTWRIGHT_ADMIN_KEY</code>.</p>
    </div>`;
  }
  return html`<${Trouble} error=${error} what="Nothing was changed" />`;
}
