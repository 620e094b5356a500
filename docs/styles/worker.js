// Search in pages that are opened from disk: browsers start no worker there, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      frame.srcdoc = "";
      frame.onload = () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => {
          this.postMessage = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
          this.waiting.forEach((data) => this.postMessage(data));
        };
        inside.document.head.append(script);
      };
      document.body.append(frame);
    }

    postMessage(data) {
      this.waiting.push(data);
    }
  };
}
