/** Names of the messages between preload and main process. Nothing else may stand here: the sandboxed preload bundles it. */
export const CHANNEL = { toHost: "stepccl:to-host", toPage: "stepccl:to-page", chooseFile: "stepccl:choose-file" } as const;
