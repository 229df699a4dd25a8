// "Use this rule": asks, saves it into the model's folder, and says how to do the same without the page.
import { button, copyButton, loader, make, nameOf } from "./elements.js";
import { forgetFigures, optionsOf } from "./rules.js";
import { ask } from "./service.js";

const snippet = (words, text) => {
  const code = make("code", {}, text);
  return make(
    "div",
    { class: "snippet" },
    make("h3", {}, words),
    make("div", { class: "command" }, make("pre", { tabindex: 0 }, code), copyButton(code, words.toLowerCase())),
  );
};

/* Asks, saves, and says what was saved. */
export const saveDialog = async (model, rule, reload) => {
  const dialog = document.getElementById("save");
  const region = make("div", {});
  const title = make("h2", { id: "save-title" }, "Use this rule?");
  const close = button({ onclick: () => dialog.close() }, "Cancel");
  const save = button({ class: "button main-button", disabled: true }, "Save");
  const body = { model: model.name, kind: rule.kind, options: optionsOf(model, rule.kind, rule.value), replace: true };
  dialog.replaceChildren(title, region, make("p", { class: "actions" }, close, save));
  dialog.onclose = () => load.clear();
  const same = ({ command, python }) => [snippet("Command", command), snippet("Python", python)];
  const load = loader(region, {
    draw(found) {
      if (found.saved) {
        title.textContent = "Saved";
        close.textContent = "Close";
        save.remove();
        close.focus();
        return [
          make(
            "p",
            { class: "about" },
            nameOf(model.name),
            ` now answers with ${found.rule.text}. Written: `,
            make("code", {}, found.file),
            found.kept ? [". The former rule is kept as ", make("code", {}, found.kept)] : null,
            ".",
          ),
          ...same(found),
        ];
      }
      save.disabled = false;
      return [
        make(
          "p",
          { class: "about" },
          nameOf(model.name),
          ` will answer with ${found.rule.text}. `,
          make("code", {}, "rule.json"),
          " in its folder is replaced",
          model.rule ? [", and the former rule is kept in ", make("code", {}, "rules/")] : null,
          ".",
        ),
        make("p", { class: "about" }, "The rule is fitted as by this command:"),
        ...same(found),
      ];
    },
    onState(state) {
      if (state === "error") save.disabled = true;
    },
  });
  save.addEventListener("click", () => {
    save.disabled = true;
    load(async (signal) => {
      const saved = await ask("/rules", { body, signal });
      forgetFigures();
      await reload();
      return saved;
    });
  });
  load((signal) => ask("/rules", { body: { ...body, dry_run: true }, signal }));
  dialog.showModal();
};
