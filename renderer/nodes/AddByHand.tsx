import { Button, NumberInput, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useTranslation } from "react-i18next";
import { NodeInput, type Params } from "../../electron/contract/index.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { AuthFields, authOf, NO_AUTH } from "./auth-fields.js";
import { useAddMany } from "./use-add.js";
import css from "./nodes.module.css";

const START = { name: "", host: "", port: 22 as number | string, user: "", jump: "", dataAddress: "" };

export function AddByHand({ onAdded }: { onAdded(ids: string[], allWell: boolean): void }) {
  const { t } = useTranslation();
  const [draft, setDraft] = useState(START);
  const [auth, setAuth] = useState(NO_AUTH);
  const [errors, setErrors] = useState<ReadonlyMap<string, string>>(new Map());
  const add = useAddMany();
  const field = (key: "name" | "host" | "user" | "jump" | "dataAddress") => ({
    value: draft[key], error: errors.get(key),
    onChange: (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [key]: event.currentTarget.value }),
  });

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const optional = (text: string) => (text.trim() === "" ? undefined : text.trim());
    const input: Params<"nodes.add"> = {
      name: optional(draft.name), host: draft.host.trim(), port: Number(draft.port), user: draft.user.trim(), auth: authOf(auth),
      jump: draft.jump.split(",").map((hop) => hop.trim()).filter(Boolean), dataAddress: optional(draft.dataAddress),
    };
    const checked = NodeInput.safeParse(input);
    if (!checked.success) {
      setErrors(new Map(checked.error.issues.map((issue) => {
        const path = issue.path[0] === "auth" ? issue.path.join(".") : String(issue.path[0]);
        return [path, t(`add.problems.${["host", "port", "user"].includes(path) ? path : "other"}`)];
      })));
      return;
    }
    setErrors(new Map());
    void add.run([input], (ids) => onAdded(ids, ids.length === 1));
  };

  const refused = add.outcomes.find((outcome) => outcome.error !== null)?.error ?? add.error;
  return (
    <form onSubmit={submit} className={css.stack} noValidate>
      <div className={css.form}>
        <TextInput data-autofocus label={t("add.host")} placeholder="gpu-01.example.net" required {...field("host")} />
        <NumberInput label={t("add.port")} min={1} max={65535} allowDecimal={false} hideControls value={draft.port} error={errors.get("port")} onChange={(port) => setDraft({ ...draft, port })} />
        <div className={css.half}>
          <TextInput label={t("add.user")} required {...field("user")} />
          <TextInput label={t("add.name")} placeholder={draft.host || t("add.nameHint")} {...field("name")} />
        </div>
        <AuthFields draft={auth} onChange={setAuth} errors={errors} />
        <TextInput className={css.wide} label={t("add.jump")} description={t("add.jumpHint")} placeholder="ops@bastion:22, gw.internal" {...field("jump")} />
        <TextInput className={css.wide} label={t("add.dataAddress")} description={t("add.dataAddressHint")} placeholder="10.0.0.11" {...field("dataAddress")} />
      </div>
      {refused && <ErrorNote error={refused} />}
      <div className={css.footer}>
        {add.busy && <Button variant="default" onClick={add.cancel}>{t("common.cancel")}</Button>}
        <Button type="submit" loading={add.busy} data-testid="add-submit">{t("add.submit")}</Button>
      </div>
    </form>
  );
}
