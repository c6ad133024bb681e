// Sends readings: FIELDBROOK_PROJECT=room FIELDBROOK_PUBLISHER_TOKEN=... node sensor.js [READINGS]
import { Device } from "./device.js";

const url = process.env.FIELDBROOK_URL ?? "http://127.0.0.1:8888";
const device = new Device(url, process.env.FIELDBROOK_PROJECT, process.env.FIELDBROOK_PUBLISHER_TOKEN, {
  onRetry: (problem, pauseMs) => console.log(`again in ${Math.round(pauseMs)} ms: ${problem}`),
});
const type = process.env.SENSOR_TYPE ?? "TEMPERATURE";

let refused = 0;
for (let number = 1; number <= Number(process.argv[2] ?? 3); number += 1) {
  device
    .send(type, { number, celsius: 20 + Math.random() })
    .then((results) => console.log(`${number} committed, handlers returned`, results.map((r) => r.code)))
    .catch((error) => {
      refused += 1;
      console.log(`${number} refused: ${error.message}`);
    });
}
process.on("exit", () => {
  process.exitCode = refused ? 1 : 0;
});
