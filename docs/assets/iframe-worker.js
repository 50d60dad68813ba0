// A page from the disk may start no worker. There, the worker of the search runs in a hidden frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(url) {
      super();
      this.#loaded = new Promise((resolve, reject) => {
        this.#frame.onload = () => {
          const inside = this.#frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = url;
          script.onload = () => resolve(inside);
          script.onerror = () => reject(new Error(`cannot load ${url}`));
          inside.document.head.append(script);
        };
      });
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>search</title>";
      document.body.append(this.#frame);
    }

    postMessage(data) {
      this.#loaded.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
