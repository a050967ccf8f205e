export { describeBundle, loadBundle, type Bundle } from "./bundle.js";
export { Fleet, type FleetEvents, type FleetOptions } from "./fleet.js";
export { Operations, type NodeTask, type StepReport } from "./operations.js";
export { MemorySecretKeeper, type SecretKeeper } from "./secrets.js";
export { openStore, type Documents, type NodeRecord, type Store } from "./store.js";
export { REMOVE_STEPS } from "./take_down.js";
