/** Uses the client that openapi-fetch makes from the types of openapi-typescript. */

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({
  baseUrl: process.argv[2],
  headers: { Authorization: "Bearer s3cret" },
});

async function create(id: number) {
  return await client.POST("/plants", { body: { id, name: `plant ${id}`, tag: "indoor" } });
}

/** Check both kinds of response: a plant, and an error. */
async function checkResponses() {
  const created = await create(1);
  assert.equal(created.data?.name, "plant 1");
  assert.equal(created.data?.tag, "indoor");
  const refused = await create(1);
  assert.equal(refused.data, undefined);
  assert.equal(refused.error?.error, 40004);
  const read = await client.GET("/plants/{id}", { params: { path: { id: 1 } } });
  assert.deepEqual(read.data, created.data);
  const body = { name: "new" };
  const updated = await client.PUT("/plants/{id}", { params: { path: { id: 1 } }, body });
  assert.deepEqual(updated.data, body);
}

/** Return the ids of all plants, page by page. */
async function list() {
  const ids: number[] = [];
  let after: number | undefined;
  do {
    const { data, response } = await client.GET("/plants", {
      params: { query: { limit: 100, after } },
    });
    assert(data);
    ids.push(...data.map((plant) => plant.id));
    after = response.headers.has("Link") ? ids.at(-1) : undefined;
  } while (after !== undefined);
  return ids;
}

await checkResponses();
const expected = [1];
for (let id = 2; id <= 250; id += 1) {
  await create(id);
  expected.push(id);
}
assert.deepEqual(await list(), expected);
const removed = await client.DELETE("/plants/{id}", { params: { path: { id: 1 } } });
assert.equal(removed.response.status, 204);
