# countmill on Google Cloud, with its roles apart. docs/howto/google-cloud.md explains the settings, and says
# how to apply, try and destroy this.

terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source = "hashicorp/google"
      # The names of all arguments here are in the documentation of 7.45.
      version = "~> 7.45"
    }
  }
}

# The API of budgets needs a project for its quota.
provider "google" {
  project               = var.project
  region                = var.region
  user_project_override = true
  billing_project       = var.project
}

data "google_project" "this" {
  project_id = var.project
}

resource "google_project_service" "apis" {
  for_each = toset([
    "billingbudgets.googleapis.com",
    "compute.googleapis.com",
    "firestore.googleapis.com",
    "iam.googleapis.com",
    "memcache.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
  ])

  service            = each.key
  disable_on_destroy = false # other programs of the project may need it
}
