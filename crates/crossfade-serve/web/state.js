// What all views share: the models and limits of the server, and ways from one view to another, filled in by app.js.
export const app = {
  models: [],
  server: null,
  limits: { max_count: 16, max_steps: 1000, max_pixels: 4194304, max_body: 33554432 },
  /** Looks at a picture closely. */
  open() {},
  /** Asks what to change about a job with the same seed. */
  again() {},
  /** Compares two settings. */
  compare() {},
  /** Works on a picture in the view of tasks. */
  work() {},
};

export const models = (kind, task) => app.models.filter((m) => m.kinds.includes(kind) && (!task || m.tasks.includes(task)));
