// Makes an element of a built page the widget. Its attribute `state` is the model: whoever sets it changes the widget,
// and a page that is saved keeps what its reader has set.

function defineWidget(name, render) {
  customElements.define(name, class extends HTMLElement {
    static observedAttributes = ["state"];

    connectedCallback() {
      if (this.listeners) return;
      this.listeners = new Set();
      const drawn = document.createElement("div");
      render({ model: this.model(), el: drawn });
      this.replaceChildren(drawn); // where drawing fails, the table stays
    }

    attributeChangedCallback() {
      this.listeners?.forEach((listener) => listener());
    }

    // what a widget uses of anywidget's model
    model() {
      return {
        get: () => {
          try {
            return JSON.parse(this.getAttribute("state"));
          } catch {
            return null;
          }
        },
        set: (entry, state) => this.setAttribute("state", JSON.stringify(state)),
        save_changes: () => {},
        on: (event, listener) => this.listeners.add(listener),
        off: (event, listener) => this.listeners.delete(listener),
      };
    }
  });
}
