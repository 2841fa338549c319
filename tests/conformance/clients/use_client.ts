/** Uses the client that openapi-fetch makes from the types of openapi-typescript. */

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const headers = { Authorization: "Bearer s3cret" };
const client = createClient<paths>({ baseUrl: process.argv[2], headers });
const create = (id: number) =>
  client.POST("/plants", { body: { id, name: `plant ${id}`, tag: "indoor" } });

// Both kinds of response: a plant, and an error.
const created = await create(1);
assert.equal(created.data?.name, "plant 1");
assert.equal(created.data?.tag, "indoor");
const refused = await create(1);
assert.equal(refused.data, undefined);
assert.equal(refused.error?.error, 40004);
const params = { path: { id: 1 } };
assert.deepEqual((await client.GET("/plants/{id}", { params })).data, created.data);
const body = { name: "new" };
assert.deepEqual((await client.PUT("/plants/{id}", { params, body })).data, body);

// All plants, page by page.
const ids: number[] = [];
for (let id = 2; id <= 250; id += 1) await create(id);
let after: number | undefined;
do {
  const { data, response } = await client.GET("/plants", {
    params: { query: { limit: 100, after } },
  });
  assert(data);
  ids.push(...data.map((plant) => plant.id));
  after = response.headers.has("Link") ? ids.at(-1) : undefined;
} while (after !== undefined);
assert.deepEqual(ids, Array.from({ length: 250 }, (_, index) => index + 1));
assert.equal((await client.DELETE("/plants/{id}", { params })).response.status, 204);
