// SPDX-License-Identifier: Apache-2.0
import { createRequire } from 'node:module';

const native = createRequire(import.meta.url)('./build/Release/stepccl_addon.node');

export const { decodeTelemetryFrame, expectedTimeUs, fitAlphaBeta, runtimeVersion } = native;
