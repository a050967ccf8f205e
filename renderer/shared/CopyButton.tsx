import { ActionIcon, Tooltip } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import IconCheck from "@tabler/icons-react/icons/IconCheck";
import IconCopy from "@tabler/icons-react/icons/IconCopy";
import IconX from "@tabler/icons-react/icons/IconX";

/** Copies exactly the text given (never what is shown of it). Says whether it worked; the icon's place does not change. */
export function CopyButton({ text, label }: { text: string; label?: string }) {
  const { t } = useTranslation();
  const [state, setState] = useState<"idle" | "done" | "failed">("idle");
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => () => {
    if (timer.current !== null) clearTimeout(timer.current);
  }, []);
  const settle = (next: "done" | "failed") => {
    setState(next);
    if (timer.current !== null) clearTimeout(timer.current);
    timer.current = setTimeout(() => setState("idle"), 1600);
  };
  const title = state === "done" ? t("common.copied") : state === "failed" ? t("common.copyFailed") : (label ?? t("common.copy"));
  return (
    <Tooltip label={title}>
      <ActionIcon
        size="sm" aria-label={title} color={state === "failed" ? "red" : "gray"}
        onClick={(event) => {
          event.stopPropagation();
          navigator.clipboard.writeText(text).then(() => settle("done"), () => settle("failed"));
        }}
      >
        {state === "done" ? <IconCheck size={14} /> : state === "failed" ? <IconX size={14} /> : <IconCopy size={14} />}
      </ActionIcon>
    </Tooltip>
  );
}
